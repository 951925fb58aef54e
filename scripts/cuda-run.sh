#!/bin/sh
# Runs a command with what the build tag cuda needs: cuda.h and something to link -lcuda against.
#
#   scripts/cuda-run.sh go test -tags cuda ./engine/backend/cuda/...
#
# cuda.h comes from NVIDIA's wheel of the runtime, one of those in kernels/cuda/requirements.txt, into
# .cache/cuda; no GPU, no driver and no compiler of CUDA is needed. The linker gets an empty archive: the driver's
# functions are in the binary (engine/backend/cuda/driver) and look for libcuda.so.1 when one is called.
set -eu

root=$(cd "$(dirname "$0")/.." && pwd)
mkdir -p "$root/.cache/cuda"
cache=$(cd "$root/.cache/cuda" && pwd -P)

fail() {
	echo "cuda: $*" >&2
	exit 1
}

# wheel installs the runtime's wheel once for each version of its pin.
wheel() {
	if [ "$(cat "$cache/headers/pin" 2>/dev/null)" != "$pin" ]; then
		rm -rf "$cache/headers"
		python3 -m venv "$cache/headers/venv" >"$cache/venv.log" 2>&1 ||
			fail "python3 -m venv failed ($(tail -n 1 "$cache/venv.log")); install python3 with venv, or do without CUDA"
		echo "$pin" >"$cache/headers/requirements.txt"
		"$cache/headers/venv/bin/pip" install --quiet --disable-pip-version-check --no-deps --only-binary :all: --require-hashes \
			--target "$cache/headers/lib" -r "$cache/headers/requirements.txt" 2>"$cache/pip.log" ||
			fail "cuda.h could not be installed ($(grep -m 1 ERROR "$cache/pip.log" || tail -n 1 "$cache/pip.log")); run it once with a network, or put the wheel nvidia-cuda-runtime-cu12 of kernels/cuda/requirements.txt into a folder and set PIP_NO_INDEX=1 PIP_FIND_LINKS=<folder>"
		rm -rf "$cache/headers/venv"
		echo "$pin" >"$cache/headers/pin"
	fi
}

[ "$(uname -s) $(uname -m)" = "Linux x86_64" ] || fail "the tag cuda is for Linux on x86-64"
pin=$(grep '^nvidia-cuda-runtime-cu12==' "$root/kernels/cuda/requirements.txt")
if [ ! -f "$cache/include/cuda.h" ] || [ "$(cat "$cache/include/pin" 2>/dev/null)" != "$pin" ]; then
	# What `make kernels` installed has it too.
	header=
	[ "$(cat "$cache/nvrtc/pins" 2>/dev/null)" != "$(sha256sum <"$root/kernels/cuda/requirements.txt" | cut -d' ' -f1)" ] ||
		header=$(ls "$cache"/nvrtc/lib/python3*/site-packages/nvidia/cuda_runtime/include/cuda.h 2>/dev/null || :)
	if [ -z "$header" ]; then
		wheel
		header=$(find "$cache/headers/lib" -name cuda.h | head -n 1)
		[ -n "$header" ] || fail "the wheel nvidia-cuda-runtime-cu12 holds no cuda.h; remove .cache/cuda/headers and run again"
	fi
	mkdir -p "$cache/include"
	cp "$header" "$cache/include/cuda.h.$$"
	mv "$cache/include/cuda.h.$$" "$cache/include/cuda.h"
	echo "$pin" >"$cache/include/pin"
fi
mkdir -p "$cache/compat" "$cache/link"
cmp -s "$root/engine/backend/cuda/driver/compat/cuda.h" "$cache/compat/cuda.h" || cp "$root/engine/backend/cuda/driver/compat/cuda.h" "$cache/compat/cuda.h"
[ -f "$cache/link/libcuda.a" ] || ar crs "$cache/link/libcuda.a"

export CGO_ENABLED=1
case ${CGO_CFLAGS:-} in
*" -I$cache/compat -I$cache/include") ;; # from the Makefile
*)
	export CGO_CFLAGS="${CGO_CFLAGS:--g -O2} -I$cache/compat -I$cache/include"
	export CGO_LDFLAGS="${CGO_LDFLAGS:--g -O2} -L$cache/link"
	;;
esac
exec "$@"
