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

# What is in the binary: its largest sections, and code and data by language.
if [ -f bin/vapp ] && command -v readelf >/dev/null && command -v nm >/dev/null; then
	echo
	echo "sections of bin/vapp; a release has none of .debug_*, .symtab and .strtab (docs/guide/install.md)"
	readelf -SW bin/vapp | sed -n 's/^ *\[ *[0-9]*\] *//p' | awk '$2 != "NOBITS" { print $5, $1 }' | while read -r n name; do
		printf '%9.2f MB  %s\n' "$(awk -v n="$((0x$n))" 'BEGIN { print n / 1e6 }')" "$name"
	done | sort -rn | head -n 10
	echo "symbols of bin/vapp"
	nm -S --size-sort -t d bin/vapp | awk '$3 !~ /[bB]/ {
		n = $2 + 0
		if ($4 ~ /^(_ZN|_R|anon\.)/ || $4 ~ /llvm/) rust += n
		else if ($4 ~ /^vapp\.dev\/|^main\./) ours += n
		else if ($4 ~ /^cuelang\.org|^cuelabs\.dev/) cue += n
		else if ($4 ~ /[.\/:]/) go += n
		else c += n
	} END { printf "%9.2f MB  Go, of other modules\n%9.2f MB  Go, vapp\n%9.2f MB  Go, CUE\n%9.2f MB  C\n%9.2f MB  Rust\n", go / 1e6, ours / 1e6, cue / 1e6, c / 1e6, rust / 1e6 }' | sort -rn
fi
