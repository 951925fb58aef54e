#!/bin/sh
# Says whether this machine has what building vapp needs, and how to get what
# it lacks. Exit code 1 when something is missing.
set -u
cd "$(dirname "$0")/.."

missing=0
lacks() {
	missing=1
	echo "vapp: $1" >&2
	echo "      $2" >&2
}

# at_least HAVE WANT: versions as numbers between dots.
at_least() {
	[ "$(printf '%s\n%s\n' "$2" "$1" | sort -t. -k1,1n -k2,2n -k3,3n | head -n 1)" = "$2" ]
}

want_go=$(sed -n 's/^go //p' go.mod)
if ! command -v go >/dev/null; then
	lacks "no go on the path; $want_go or newer is needed" \
		"install the Go distribution (go.dev), or your system's package golang"
elif have=$(go env GOVERSION 2>&1) && have=${have#go} && ! at_least "${have%%[!0-9.]*}" "$want_go"; then
	lacks "go is $have; $want_go or newer is needed" "install a newer Go, or unset GOTOOLCHAIN"
fi

compiler=${CC:-$(go env CC 2>/dev/null || echo cc)}
if ! command -v "${compiler%% *}" >/dev/null; then
	lacks "no C compiler ($compiler) on the path; gcc 11 or clang 14 and newer will do" \
		"Debian, Ubuntu: apt-get install gcc libc6-dev; Fedora: dnf install gcc; macOS: xcode-select --install"
elif ! printf '#include <math.h>\n#include <stdlib.h>\nint main(void) { return 0; }\n' |
	$compiler -x c -o /dev/null - -lm 2>/dev/null; then
	lacks "the C compiler ($compiler) cannot build a small program: are the headers of the C library there?" \
		"Debian, Ubuntu: apt-get install libc6-dev; macOS: xcode-select --install"
fi

want_rust=1.87.0
if ! command -v cargo >/dev/null || ! command -v rustc >/dev/null; then
	lacks "no cargo and rustc on the path; Rust $want_rust or newer is needed for the text library" \
		"install rustup and run: rustup toolchain install stable --profile minimal"
elif have=$(rustc --version | cut -d' ' -f2) && ! at_least "${have%%[!0-9.]*}" "$want_rust"; then
	lacks "rustc is $have; $want_rust or newer is needed" "run: rustup update stable"
fi
exit $missing
