#!/bin/sh
# Compiles kernels/cuda/*.cu into .cache/cuda/kernels.fatbin: machine code for sm_80, 89, 90a, 100 and
# 120 and PTX of compute_80 for what comes later, compressed. Prints registers, shared memory and spills
# of every kernel by architecture, and leaves that table in .cache/cuda/kernels.txt.
#
#   scripts/kernels.sh         builds what is not built yet
#   scripts/kernels.sh check   builds twice and fails unless the bytes are equal, or where a kernel spills
#
# nvcc comes from wheels pinned by kernels/cuda/requirements.txt, into .cache/cuda/nvcc; no GPU and no
# driver is needed. Nothing else of vapp needs this yet: `make build` and `make test` go without nvcc.
set -eu

root=$(cd "$(dirname "$0")/.." && pwd)
cache=$root/.cache/cuda
source=$root/kernels/cuda
pins=$source/requirements.txt
mkdir -p "$cache"

fail() {
	echo "kernels: $*" >&2
	exit 1
}

# tools installs nvcc once for each version of the pins.
tools() {
	[ "$(uname -s) $(uname -m)" = "Linux x86_64" ] || fail "the pinned wheels of nvcc are for Linux on x86-64; build the fatbin there"
	want=$(sha256sum <"$pins" | cut -d' ' -f1)
	if [ "$(cat "$cache/nvcc/pins" 2>/dev/null)" != "$want" ]; then
		rm -rf "$cache/nvcc"
		python3 -m venv "$cache/nvcc" >"$cache/venv.log" 2>&1 ||
			fail "python3 -m venv failed ($(tail -n 1 "$cache/venv.log")); install python3 with venv and run again"
		"$cache/nvcc/bin/pip" install --quiet --disable-pip-version-check --no-deps --only-binary :all: --require-hashes -r "$pins" 2>"$cache/pip.log" ||
			fail "nvcc's wheels could not be installed ($(grep -m 1 ERROR "$cache/pip.log" || tail -n 1 "$cache/pip.log")); run it with a network, or put the wheels of kernels/cuda/requirements.txt into a folder and set PIP_NO_INDEX=1 PIP_FIND_LINKS=<folder>"
		echo "$want" >"$cache/nvcc/pins"
	fi
	nvcc=$(ls "$cache"/nvcc/lib/python3*/site-packages/nvidia/cu13/bin/nvcc 2>/dev/null) || fail "the wheels hold no nvcc; remove .cache/cuda/nvcc and run again"
}

# inputs are what the fatbin is made of.
inputs() {
	cat "$pins" "$0"
	(cd "$source" && cat ./*.cu ./*.cuh)
}

# build writes the fatbin to $1 and what ptxas says to $2. The sources are named from their own folder, so
# that no path of this machine gets into it.
build() {
	code=
	for a in 80 89 90a 100 120; do code="$code -gencode arch=compute_$a,code=sm_$a"; done
	# shellcheck disable=SC2086
	(cd "$source" && nice -n 10 "$nvcc" -std=c++17 -O3 -fatbin $code -gencode arch=compute_80,code=compute_80 \
		-Xfatbin -compress-all -Xptxas -v -o "$1" kernels.cu) 2>"$2" || {
		grep -v '^ptxas info' "$2" >&2 || :
		fail "nvcc did not compile kernels/cuda"
	}
	grep -v -e '^ptxas info' -e 'bytes stack frame' "$2" >&2 || :
}

# table reads ptxas's lines: a row for each kernel and architecture.
table() {
	awk '
	/Compiling entry function/ { split($0, p, "\x27"); kernel = p[2]; arch = p[4] }
	/bytes stack frame/ { stack = $1; stores = $5; loads = $9 }
	/Used [0-9]+ registers/ {
		shared = 0
		for (i = 1; i <= NF; i++) {
			if ($i == "Used") registers = $(i + 1)
			if ($i ~ /^smem/) shared = $(i - 2)
		}
		if (kernel != "") printf "%-28s %-8s %9d %10d %8d %8d %8d\n", kernel, arch, registers, shared, stack, stores, loads
		kernel = ""
	}' "$1" | LC_ALL=C sort >"$cache/rows"
	{
		printf '%-28s %-8s %9s %10s %8s %8s %8s\n' kernel arch registers shared stack stores loads
		cat "$cache/rows"
	} >"$cache/kernels.txt"
}

tools
if [ "${1:-}" = check ]; then
	build "$cache/first.fatbin" "$cache/first.log"
	build "$cache/second.fatbin" "$cache/second.log"
	cmp "$cache/first.fatbin" "$cache/second.fatbin" || fail "two builds differ"
	table "$cache/first.log"
	spills=$(awk '$6 + $7 > 0 { print $1 " (" $2 ")" }' "$cache/rows" | tr '\n' ' ')
	[ -z "$spills" ] || fail "registers spill: $spills"
	rm -f "$cache/first.fatbin" "$cache/second.fatbin"
	echo "kernels: two builds are equal, $(wc -l <"$cache/rows") kernels by architecture, no spills"
	exit 0
fi
want=$(inputs | sha256sum | cut -d' ' -f1)
if [ ! -f "$cache/kernels.fatbin" ] || [ "$(cat "$cache/inputs" 2>/dev/null)" != "$want" ]; then
	build "$cache/new.fatbin" "$cache/ptxas.log"
	table "$cache/ptxas.log"
	mv "$cache/new.fatbin" "$cache/kernels.fatbin"
	echo "$want" >"$cache/inputs"
fi
cat "$cache/kernels.txt"
echo "kernels: .cache/cuda/kernels.fatbin, $(wc -c <"$cache/kernels.fatbin") bytes, sha256 $(sha256sum <"$cache/kernels.fatbin" | cut -d' ' -f1)"
