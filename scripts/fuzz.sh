#!/bin/sh
# Fuzzes every Fuzz target of the tree, one after the other, for FUZZTIME each
# (default 10s). Arguments narrow it down to folders: scripts/fuzz.sh schema
# A failing input is written to the package's testdata/fuzz by the go command:
# commit it with the fix.
set -eu
cd "$(dirname "$0")/.."

time=${FUZZTIME:-10s}
targets=$(git ls-files -co --exclude-standard -- '*_test.go' | LC_ALL=C sort | while read -r f; do
	[ -f "$f" ] && sed -n "s|^func \(Fuzz[A-Za-z0-9_]*\)(.*|$(dirname "$f") \1|p" "$f"
done | LC_ALL=C sort)
[ -n "$targets" ] || { echo "fuzz: no targets" >&2; exit 1; }

# The go command reports the end of -fuzztime as a failure when it meets its
# workers between two inputs (golang.org/issue/75804). Such a run says nothing
# under the test's own FAIL line but this, and writes no failing input.
only_deadline() {
	said=$(echo "$1" | sed -n '/^--- FAIL:/,/^FAIL/p' | sed '1d;$d' | tr -d ' ')
	[ "$said" = contextdeadlineexceeded ]
}

# One program a package, instrumented and linked once for all its targets.
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
cache=$(go env GOCACHE)/fuzz
module=$(go list -m)
built=

n=0
failed=
while read -r dir name; do
	if [ $# -gt 0 ]; then
		wanted=no
		for arg in "$@"; do
			arg=${arg#./}
			case $dir/ in "${arg%/}"/*) wanted=yes ;; esac
		done
		[ $wanted = yes ] || continue
	fi
	n=$((n + 1))
	echo "== $dir $name, $time"
	if [ "$built" != "$dir" ]; then
		rm -f "$tmp/fuzz.test"
		go test -c -fuzz . -o "$tmp/fuzz.test" "./$dir"
		built=$dir
	fi
	# The elapsed lines of a passing run say nothing.
	if out=$(cd "$dir" && "$tmp/fuzz.test" -test.run '^$' -test.fuzz "^$name\$" -test.fuzztime "$time" -test.fuzzminimizetime 5x -test.parallel 2 \
		-test.timeout 10m -test.fuzzcachedir "$cache/$module/$dir" </dev/null 2>&1); then
		echo "$out" | tail -n 3
	elif only_deadline "$out"; then
		echo "time was up between two inputs; no input failed"
	else
		echo "$out"
		failed="$failed $dir/$name"
	fi
done <<EOF
$targets
EOF
echo "fuzz: $n targets, $time each"
[ -z "$failed" ] || { echo "fuzz: failed:$failed" >&2; exit 1; }
[ $n -gt 0 ] || { echo "fuzz: no target in: $*" >&2; exit 1; }
