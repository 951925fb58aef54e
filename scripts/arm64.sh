#!/bin/sh
# Builds and tests for Linux on 64-bit ARM with a cross compiler; tests run under qemu's emulation
# of user programs. That shows results, not speed.
#
#   scripts/arm64.sh go ARGS…   the go command for linux/arm64 with cgo
#   scripts/arm64.sh test       kernels on three processors, the suite of backends, goldens of five
#                               families, an answer of the default model
#   scripts/arm64.sh missing    prints what a build needs and this machine lacks, or nothing
#
# It needs gcc and libstdc++ for aarch64 and rustc's target aarch64-unknown-linux-gnu; tests need
# qemu-aarch64-static.
set -eu
cd "$(dirname "$0")/.."
root=$PWD
target=aarch64-unknown-linux-gnu
cc=aarch64-linux-gnu-gcc

missing() {
	command -v $cc >/dev/null || {
		echo "$cc is not on the path (Debian: apt-get install g++-aarch64-linux-gnu)"
		return
	}
	[ "$($cc -print-file-name=libstdc++.a)" != libstdc++.a ] || echo "libstdc++ for aarch64 is not installed (Debian: apt-get install g++-aarch64-linux-gnu)"
	libs=$(rustc --print target-libdir --target $target 2>/dev/null) && [ -d "$libs" ] || echo "rustc has no target $target (rustup target add $target)"
}

cross_go() {
	CARGO_BUILD_TARGET=$target CC_aarch64_unknown_linux_gnu=$cc CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER=$cc scripts/build-native.sh
	GOOS=linux GOARCH=arm64 CGO_ENABLED=1 CC=$cc CXX=aarch64-linux-gnu-g++ CGO_CFLAGS="${ARM64_CFLAGS:--g -O2}" \
		CGO_LDFLAGS="-g -O2 -L$root/engine/tokenizer/native/lib/$target" go "$@"
}

case ${1:-} in
missing) missing ;;
go)
	shift
	lacks=$(missing)
	[ -z "$lacks" ] || {
		echo "arm64: $lacks" >&2
		exit 1
	}
	cross_go "$@"
	;;
test)
	lacks=$(missing)
	command -v qemu-aarch64-static >/dev/null || lacks="${lacks:+$lacks; }qemu-aarch64-static is not on the path (Debian: apt-get install qemu-user-static)"
	[ -z "$lacks" ] || {
		echo "test-arm64: not run: $lacks" >&2
		exit 0
	}
	# Processors of each variant: Graviton 1, Graviton 2 and Altra, and everything that qemu has.
	for machine in "cortex-a72 neon,generic" "neoverse-n1 dotprod,neon,generic" "max i8mm,dotprod,neon,generic"; do
		qemu="qemu-aarch64-static -cpu ${machine% *} -L /usr/aarch64-linux-gnu"
		echo "test-arm64: $qemu"
		VAPP_WANT_VARIANTS=${machine#* } cross_go test -count=1 -exec "$qemu" ./kernels/cpu/isa
		cross_go test -count=1 -timeout 30m -exec "$qemu" -run 'Linear|Int8|W8A8|Mirrors' ./kernels/cpu
	done
	cross_go test -count=1 -timeout 30m -exec "$qemu" -short -run TestSuite ./engine/backend/cpu
	cross_go test -count=1 -timeout 30m -exec "$qemu" -run 'TestGoldenCPU/(neon|dotprod|i8mm)/tiny-(llama3|mha|qwen3|gpt-oss|gemma4)' ./engine/models
	if [ -f models/SmolLM2-135M-Instruct.Q4_1.gguf ]; then
		work=$(mktemp -d)
		trap 'rm -rf "$work"' EXIT
		cross_go build -o "$work/vapp" ./cmd/vapp
		answer=$($qemu "$work/vapp" run profiles/smollm2.cue --prompt "What is the capital of France?" --max-tokens 12 2>/dev/null)
		echo "test-arm64: $answer"
		case $answer in *Paris*) ;; *) exit 1 ;; esac
	else
		echo "test-arm64: the default model is not here (make model): vapp run is not run" >&2
	fi
	;;
*)
	sed -n '2,12s/^# \{0,1\}//p' "$0" >&2
	exit 2
	;;
esac
