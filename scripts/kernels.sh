#!/bin/sh
# Compiles kernels/cuda/*.cu: each into an archive of machine code for sm_80, 89, 90a, 100 and 120 and of
# PTX of compute_80 for what comes later, where a binary with the tag cuda embeds it
# (kernels/cuda/image/built). cuda.CodeFor says which driver runs what (docs/cuda-drivers.md).
#
#   scripts/kernels.sh               builds what is not built yet, and prints registers, shared memory and
#                                    spills of every kernel by architecture (.cache/cuda/kernels.txt)
#   scripts/kernels.sh embed         the same without the table
#   scripts/kernels.sh check [ARCH…] compiles twice for these architectures, all without one, and fails
#                                    unless the machine code is the same, or where a kernel spills more
#                                    than one register, which ptxas parks outside of loops
#   scripts/kernels.sh log FILE ARCH LOG  fails where ptxas's log of a file says that products of
#                                    warpgroups wait for each other
#   scripts/kernels.sh spills [ARCH…] compiles what is not compiled, and fails where a kernel spills or has a stack
#                                    that the plan does not count
#   scripts/kernels.sh errors        compiles for all architectures as fast as that goes, a fifth of the
#                                    time, and keeps nothing: are there errors?
#
# VAPP_CUDA_ARCHS=90a builds for that architecture alone, which a machine with one device is content with.
# A file is compiled for an architecture when it or a header that it includes has changed, by as many
# processes as there are processors: .cache/cuda/objects.
#
# The compiler is NVRTC of CUDA 12.9 (scripts/kernels.py), from wheels pinned by
# kernels/cuda/requirements.txt, in .cache/cuda/nvrtc; no GPU and no driver is needed. Machine code of
# CUDA 12 runs on every driver from 525 on (Blackwell's: 570). `make test` goes without the compiler,
# `make build` where it is built without CUDA.
set -eu

root=$(cd "$(dirname "$0")/.." && pwd)
cache=$root/.cache/cuda
source=$root/kernels/cuda
pins=$source/requirements.txt
objects=$cache/objects
packed=$cache/packed
built=$source/image/built
every="90a 80 100 89 120"
archs=${VAPP_CUDA_ARCHS:-$every}
options="-std=c++17"
mkdir -p "$objects"

fail() {
	echo "kernels: $*" >&2
	exit 1
}

# tools installs the compiler once for each version of the pins.
tools() {
	[ "$(uname -s) $(uname -m)" = "Linux x86_64" ] || fail "the pinned wheels of NVRTC are for Linux on x86-64; build the kernels there"
	want=$(sha256sum <"$pins" | cut -d' ' -f1)
	if [ "$(cat "$cache/nvrtc/pins" 2>/dev/null)" != "$want" ]; then
		rm -rf "$cache/nvrtc"
		python3 -m venv "$cache/nvrtc" >"$cache/venv.log" 2>&1 ||
			fail "python3 -m venv failed ($(tail -n 1 "$cache/venv.log")); install python3 with venv and run again"
		"$cache/nvrtc/bin/pip" install --quiet --disable-pip-version-check --no-deps --only-binary :all: --require-hashes -r "$pins" 2>"$cache/pip.log" ||
			fail "NVRTC's wheels could not be installed ($(grep -m 1 ERROR "$cache/pip.log" || tail -n 1 "$cache/pip.log")); run it with a network, or put the wheels of kernels/cuda/requirements.txt into a folder and set PIP_NO_INDEX=1 PIP_FIND_LINKS=<folder>"
		rm -f "$cache"/nvrtc/lib/python3*/site-packages/nvidia/cuda_nvrtc/lib/*.alt.so* # 114 MB that nothing here opens
		echo "$want" >"$cache/nvrtc/pins"
	fi
	for wheels in "$cache"/nvrtc/lib/python3*/site-packages/nvidia; do :; done
	[ -f "$wheels/cuda_nvrtc/lib/libnvrtc.so.12" ] || fail "the wheels hold no libnvrtc.so.12; remove .cache/cuda/nvrtc and run again"
}

# python runs scripts/kernels.py in the folder of the kernels.
python() {
	(cd "$source" && exec "$cache/nvrtc/bin/python3" "$root/scripts/kernels.py" "$@")
}

# needs names a file and the headers that it includes, which include others.
needs() {
	found=$1 next=$1
	while [ -n "$next" ]; do
		# shellcheck disable=SC2086
		next=$(cd "$source" && sed -n 's/^#include "\([a-z0-9_]*\.cuh\)".*/\1/p' $next | sort -u | grep -vxF "$(echo "$found" | tr ' ' '\n')" || :)
		found=$(echo $found $next)
	done
	echo "$found"
}

# object is where file $1's code for architecture $2 lies, without an extension.
object() {
	# shellcheck disable=SC2046
	key=$({
		echo "$options"
		cat "$pins" "$root/scripts/kernels.py" "$source/nvrtc/stdint.h"
		cd "$source" && cat $(needs "$1.cu")
	} | sha256sum | cut -c1-20)
	echo "$objects/$1-$2-$key"
}

# serialized fails where $3, what ptxas said of file $1 for architecture $2, has a line of C7500 to C7599 (products of
# warpgroups are serialized, or a wait is injected) or one of "wgmma … serialized". ptxas calls them information, but
# such products run one by one, at a fraction of the rate, and no test shows it.
serialized() {
	status=0
	lines=$(grep -E 'C75[0-9][0-9]|wgmma.*serialized' "$3") || status=$?
	[ $status -le 1 ] || fail "the log of kernels/cuda/$1.cu for sm_$2 cannot be read"
	[ -z "$lines" ] || fail "kernels/cuda/$1.cu for sm_$2: $lines"
}

# compile makes $3.ptx, $3.cubin and $3.log, what NVRTC and ptxas say, of file $1 for architecture $2.
compile() {
	# shellcheck disable=SC2086
	python compile "$wheels" "$2" "$1.cu" "$3.new" $options --ptxas-options=-v 2>"$3.log" || {
		grep -v '^ptxas info' "$3.log" >&2 || :
		fail "kernels/cuda/$1.cu is not compiled for sm_$2"
	}
	grep -v -e '^ptxas info' -e 'bytes stack frame' -e '^$' "$3.log" >&2 || :
	serialized "$1" "$2" "$3.log"
	mv "$3.new.ptx" "$3.ptx"
	mv "$3.new.cubin" "$3.cubin"
}

# build compiles what is not there. Files with many kernels come first.
build() {
	for a in $archs; do
		for f in $(cd "$source" && ls -S ./*.cu); do
			f=$(basename "$f" .cu)
			at=$(object "$f" "$a")
			[ -f "$at.cubin" ] || echo "$f $a $at"
		done
	done | xargs -r -n 3 -P "$(nproc)" "$0" compile || exit 1
}

# embed puts the files' archives where they are embedded.
embed() {
	rm -rf "$packed"
	mkdir "$packed"
	for f in "$source"/*.cu; do
		f=$(basename "$f" .cu) code=
		for a in $archs; do
			at=$(object "$f" "$a")
			touch -c "$at.cubin" "$at.ptx" "$at.log"
			serialized "$f" "$a" "$at.log"
			code="$code sm_$a.cubin=$at.cubin"
			[ "$a" != 80 ] || code="$code compute_80.ptx=$at.ptx"
		done
		# shellcheck disable=SC2086
		python pack "$packed/$f.zip" $code
		cmp -s "$packed/$f.zip" "$built/$f.zip" || cp "$packed/$f.zip" "$built/$f.zip"
	done
	for f in "$built"/*; do [ "${f##*/}" = README ] || [ -f "$packed/${f##*/}" ] || rm -f "$f"; done
}

# rows reads what ptxas said: one for each kernel and architecture.
rows() {
	for f in "$source"/*.cu; do
		for a in $archs; do cat "$(object "$(basename "$f" .cu)" "$a").log"; done
	done | awk '
	/Compiling entry function/ { split($0, p, "\x27"); kernel = p[2]; arch = p[4] }
	/bytes stack frame/ { stack = $1; stores = $5; loads = $9 }
	/Used [0-9]+ registers/ {
		shared = 0
		for (i = 1; i <= NF; i++) {
			if ($i == "Used") registers = $(i + 1)
			if ($i ~ /^smem/) shared = $(i - 2)
		}
		if (kernel != "") printf "%-32s %-8s %9d %10d %8d %8d %8d\n", kernel, arch, registers, shared, stack, stores, loads
		kernel = ""
	}' | LC_ALL=C sort
}

# table writes them, below a digest of the sources.
table() {
	{
		echo "sources $(cd "$source" && printf '%s\n' *.cu *.cuh | LC_ALL=C sort | xargs cat | sha256sum | cut -c1-20)"
		printf '%-32s %-8s %9s %10s %8s %8s %8s\n' kernel arch registers shared stack stores loads
		rows
	} >"$cache/kernels.txt"
}

# files calls this script's $1 with every file, every architecture of the others and where its code goes.
files() {
	what=$1 to=$(mktemp -d "$cache/again.XXXXXX")
	shift
	for a in "$@"; do
		for f in $(cd "$source" && ls -S ./*.cu); do
			f=$(basename "$f" .cu)
			echo "$f $a $to/$f-$a"
		done
	done | xargs -r -n 3 -P "$(nproc)" "$0" "$what" || {
		rm -rf "$to"
		exit 1
	}
}

# check compiles for the architectures once more.
check() {
	# shellcheck disable=SC2086
	files compile $archs
	for a in $archs; do
		for f in "$source"/*.cu; do
			f=$(basename "$f" .cu)
			cmp "$to/$f-$a.cubin" "$(object "$f" "$a").cubin" || fail "two builds of $f.cu for sm_$a differ"
			[ "$a" != 80 ] || cmp "$to/$f-$a.ptx" "$(object "$f" "$a").ptx" || fail "two builds of the PTX of $f.cu differ"
		done
	done
	rm -rf "$to"
	spills
	echo "kernels: two builds for $archs are equal"
}

# spills fails where registers spill.
spills() {
	spills=$(rows | awk '$6 + $7 > 8 { print $1 " (" $2 ")" }' | tr '\n' ' ')
	[ -z "$spills" ] || fail "registers spill: $spills"
	# The plan counts the stacks of stacks.tsv.
	stacks=$(rows | awk 'tsv { planned["vapp_" $1 " " $2] = $3; next } $5 > planned[$1 " " $2] + 0 { print $1 " (" $2 "): " $5 " bytes;" }' tsv=1 "$source/stacks.tsv" tsv=0 - | tr '\n' ' ')
	[ -z "$stacks" ] || fail "stacks that kernels/cuda/stacks.tsv does not have: $stacks go test ./kernels/cuda -run TestRegistersPage -update writes it after make kernels"
	echo "kernels: $(rows | wc -l) kernels by architecture for $archs, none spills more than a register"
}

# quick compiles file $1 for architecture $2 with little of the optimisation.
quick() {
	python compile "$wheels" "$2" "$1.cu" "$3" -std=c++17 -Ofc=max >"$3.log" 2>&1 || {
		cat "$3.log" >&2
		fail "kernels/cuda/$1.cu is not compiled for sm_$2"
	}
}

if [ "${1:-}" = log ]; then # needs no compiler
	serialized "$2" "$3" "$4"
	exit
fi
tools
case ${1:-} in
compile) compile "$2" "$3" "$4" ;;
quick) quick "$2" "$3" "$4" ;;
errors)
	# shellcheck disable=SC2086
	files quick $every
	rm -rf "$to"
	echo "kernels: all files compile for $every"
	;;
check)
	shift
	[ $# -eq 0 ] || archs=$*
	build
	check
	;;
spills)
	shift
	[ $# -eq 0 ] || archs=$*
	build
	spills
	;;
'' | embed)
	build
	embed
	table
	find "$objects" -type f -mtime +30 -delete
	[ "${1:-}" = embed ] || cat "$cache/kernels.txt"
	echo "kernels: kernels/cuda/image/built/*.zip, $(cat "$packed"/*.zip | wc -c) bytes, sha256 $(cat "$packed"/*.zip | sha256sum | cut -d' ' -f1)"
	;;
*) fail "$1: there are check, spills, embed, errors and log" ;;
esac
