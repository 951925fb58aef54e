#!/bin/sh
# Prints the sizes of the tree: a thermometer, not a gate. In brackets is what
# the house aims at.
set -eu
cd "$(dirname "$0")/.."

files() { git ls-files -co --exclude-standard -- "$@" | while read -r f; do [ -f "$f" ] && echo "$f"; done; }
# quantiles UNIT < numbers
quantiles() {
	sort -n | awk -v what="$1" -v aim="$2" '{ v[NR] = $1; sum += $1 } END {
		if (NR == 0) { printf "%-22s none\n", what; exit }
		printf "%-22s %6d  median %4d  p90 %4d  largest %5d  sum %7d   %s\n",
			what, NR, v[int((NR + 1) / 2)], v[int((NR * 9 + 9) / 10)], v[NR], sum, aim
	}'
}
lines() { while read -r f; do awk 'END { print NR }' "$f"; done; }
# functions prints "lines file name" for every function of gofmt'ed sources.
functions() {
	while read -r f; do
		awk -v file="$f" '/^func / { start = FNR; name = $0; if (/}$/ && !/{$/) { print 1, file, name; start = 0 } }
			/^}/ && start { print FNR - start + 1, file, name; start = 0 }' "$f"
	done
}
count() { xargs cat | awk 'END { print NR }'; }

code=$(files '*.go' | grep -v '_test\.go$')
tests=$(files '*_test.go')
echo "$code" | lines | quantiles "Go files, lines" "(median 190, p90 500, 800 needs a reason)"
echo "$code" | functions | cut -d' ' -f1 | quantiles "Go functions, lines" "(p90 50)"
echo "$tests" | lines | quantiles "Go test files, lines" ""
c=$(echo "$code" | count)
t=$(echo "$tests" | count)
awk -v c="$c" -v t="$t" 'BEGIN { printf "tests / code           %.2f   (0.9)\n", t / c }'
for kind in c:C rs:Rust cue:CUE; do
	files "*.${kind%%:*}" | lines | quantiles "${kind#*:} files, lines" ""
done
echo
echo "longest Go files"
echo "$code" | while read -r f; do awk -v f="$f" 'END { printf "%7d  %s\n", NR, f }' "$f"; done | sort -rn | head -n 5
echo "longest Go functions"
echo "$code" | functions | sort -rn | head -n 5 | awk '{ f = $2; n = $1; sub(/^[^ ]+ [^ ]+ func /, ""); sub(/ *{$/, ""); printf "%7d  %s  %.60s\n", n, f, $0 }'
echo "largest tracked files"
files . | while read -r f; do wc -c <"$f" | awk -v f="$f" '{ printf "%9d  %s\n", $1, f }'; done | sort -rn | head -n 5
files . | while read -r f; do wc -c <"$f"; done | awk '{ n += $1 } END { printf "tracked bytes          %.1f MiB in %d files\n", n / 1048576, NR }'
[ ! -f bin/vapp ] || wc -c <bin/vapp | awk '{ printf "bin/vapp               %.1f MiB\n", $1 / 1048576 }'
