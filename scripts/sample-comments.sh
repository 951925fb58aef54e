#!/bin/sh
# Prints comments drawn at random from the tree, each with its place, to be read against
# the rule for language in CONTRIBUTING.md: scripts/sample-comments.sh SEED [COUNT]
set -eu
cd "$(dirname "$0")/.."
seed=${1:?usage: scripts/sample-comments.sh SEED [COUNT]}
count=${2:-40}

# A comment is a block of lines that begin with //, or what follows // behind code.
# Directives of the compiler and comments without three words are left out.
git ls-files '*.go' '*.c' '*.h' '*.cu' '*.cuh' '*.rs' '*.cue' | xargs awk '
	function flush() {
		if (split(text, words, " ") >= 3) print place ": " text
		text = ""
	}
	FNR == 1 { flush() }
	/^[ \t]*\/\// {
		line = $0
		sub(/^[ \t]*\/\/[\/!]?[ \t]?/, "", line)
		if (line ~ /^(go:|export |#cgo|nolint)/ || line ~ /^\+build/) { flush(); next }
		if (text == "") place = FILENAME ":" FNR
		text = text (text == "" ? "" : " ") line
		next
	}
	{ flush() }
	match($0, /[^:"`\/]\/\/ [^"`]*$/) {
		place = FILENAME ":" FNR
		text = substr($0, RSTART + 4)
		flush()
	}
	END { flush() }
' | awk -v seed="$seed" -v count="$count" '
	BEGIN { srand(seed) }
	{ all[NR] = $0 }
	END {
		for (i = 1; i <= count && i <= NR; i++) {
			j = i + int(rand() * (NR - i + 1))
			pick = all[j]; all[j] = all[i]
			print pick "\n"
		}
	}'
