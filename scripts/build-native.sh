#!/bin/sh
# Builds the text library: engine/tokenizer/native (Rust) into native/lib/libvapptext.a, and the
# header archive_id.h that tells the go command when the archive has changed. With
# CARGO_BUILD_TARGET, a target of rustc, it builds native/lib/TARGET/libvapptext.a for another
# machine and leaves the header to the build for this one.
# Does nothing, quickly, when neither the crate nor go.mod's version of daulet/tokenizers changed.
# After one run the crates are in cargo's cache and it works offline.
set -eu

root=$(cd "$(dirname "$0")/.." && pwd)
crate=$root/engine/tokenizer/native
lib=$crate/lib${CARGO_BUILD_TARGET:+/$CARGO_BUILD_TARGET}
header=$root/engine/tokenizer/archive_id.h
module=github.com/daulet/tokenizers
cd "$root"

for tool in cargo go cc; do
	command -v "$tool" >/dev/null || {
		echo "build-native: $tool is not on the path; the text library needs rustc 1.87 or newer, go and a C compiler" >&2
		exit 1
	}
done

inputs() {
	cargo --version
	grep -F "$module " go.mod
	env | grep -E '^(RUSTFLAGS|CARGO_BUILD_TARGET)=' || :
	cd "$crate"
	cat Cargo.toml Cargo.lock build.rs
	find src -name '*.rs' | LC_ALL=C sort | while read -r f; do
		echo "$f"
		cat "$f"
	done
}
digest() {
	if command -v sha256sum >/dev/null; then sha256sum; else shasum -a 256; fi | cut -d' ' -f1
}
want=$(inputs | digest)
if [ -f "$lib/libvapptext.a" ] && [ -e "$lib/libtokenizers.a" ] && [ -f "$header" ] &&
	[ "$(cat "$lib/inputs" 2>/dev/null)" = "$want" ]; then
	exit 0
fi

echo "building the text library (about four minutes of processor time on the first run)" >&2
# The decoder of JPEG is assembled by nasm for x86-64: from the path, or on Debian and Ubuntu fetched
# into .cache without root. Without it decoding is about three times slower, with the same pixels.
nasm_folder() {
	nasm=$root/.cache/nasm
	[ -x "$nasm/usr/bin/nasm" ] || (
		command -v apt-get && command -v dpkg && mkdir -p "$nasm" && cd "$nasm" &&
			timeout 60 apt-get download nasm && dpkg -x nasm_*.deb . && rm nasm_*.deb
	) >/dev/null 2>&1 || return 1
	PATH=$nasm/usr/bin:$PATH
	nasm -v >/dev/null 2>&1
}
case ${CARGO_BUILD_TARGET:-$(uname -m)} in
x86_64*)
	command -v nasm >/dev/null || nasm_folder ||
		echo "build-native: no nasm: JPEG is decoded without SIMD; install nasm, remove $lib/inputs and build again for SIMD" >&2
	;;
esac
DAULET_DIR=$(go list -m -f '{{.Dir}}' "$module")
if [ -z "$DAULET_DIR" ]; then
	go mod download "$module"
	DAULET_DIR=$(go list -m -f '{{.Dir}}' "$module")
fi
export DAULET_DIR
if ! cargo fetch --locked --offline --manifest-path "$crate/Cargo.toml" >/dev/null 2>&1; then
	cargo fetch --locked --manifest-path "$crate/Cargo.toml"
fi
# Messages of panics name source files: without this the archive would differ by folder.
export RUSTFLAGS="${RUSTFLAGS:+$RUSTFLAGS }--remap-path-prefix=${CARGO_HOME:-$HOME/.cargo}/registry/src=/cargo --remap-path-prefix=$root=/vapp --remap-path-prefix=$DAULET_DIR=/daulet"
# mozjpeg-sys writes the time of its build into a header.
export SOURCE_DATE_EPOCH=0
cargo build --release --locked --offline --manifest-path "$crate/Cargo.toml" --target-dir "$crate/target"

mkdir -p "$lib"
cp "$crate/target/${CARGO_BUILD_TARGET:+$CARGO_BUILD_TARGET/}release/libvapptext.a" "$lib/libvapptext.a.new"
mv "$lib/libvapptext.a.new" "$lib/libvapptext.a"
ln -sf libvapptext.a "$lib/libtokenizers.a"
if [ -z "${CARGO_BUILD_TARGET:-}" ]; then
	id=$(digest <"$lib/libvapptext.a")
	printf '#define VAPPTEXT_ARCHIVE_ID "%s"\n' "$id" >"$header.new"
	cmp -s "$header.new" "$header" 2>/dev/null && rm "$header.new" || mv "$header.new" "$header"
fi
echo "$want" >"$lib/inputs"
