#!/bin/sh
# Checks the C headers of kernels/cpu/native: each compiles alone for each target that it is
# meant for, and includes have no cycle. Needs a C compiler ($CC, default cc). Targets of x86-64
# are checked on such a machine, those of 64-bit ARM on such a machine or where
# aarch64-linux-gnu-gcc is on the path. Writes nothing.
set -eu
cd "$(dirname "$0")/../kernels/cpu/native"

cc=${CC:-cc}
command -v "$cc" >/dev/null || {
	echo "check-headers: no C compiler: $cc is not on the path" >&2
	exit 1
}
x86=
case $(uname -m) in x86_64 | amd64) x86=1 ;; esac
arm=aarch64-linux-gnu-gcc
case $(uname -m) in aarch64 | arm64) arm=$cc ;; esac
command -v "$arm" >/dev/null || {
	echo "check-headers: $arm is not on the path: the targets of ARM are not checked (Debian: apt-get install gcc-aarch64-linux-gnu)" >&2
	arm=
}

# targets HEADER prints the targets of a header, as the .c files use it.
targets() {
	case $1 in
	attention/bf16_common.h | attention/pairs.h | attention/decode.h | attention/fp8.h) echo avx512bf16 amx amx_soft ;;
	attention/bf16.h | attention/both_pairs.h) echo avx512bf16 ;;
	attention/dot.h | attention/both.h) echo generic neon avx2 avx512 ;;
	attention/amx.h | attention/both_amx.h) echo amx amx_soft ;;
	attention/*.h) echo generic neon avx2 avx512 avx512bf16 amx amx_soft ;;
	activation/adapt.h | activation/body.h | limits/body.h | norm/body.h | sample/body.h | state/body.h) echo generic neon avx2 avx512 ;;
	shared/vec.h | shared/act.h) echo generic neon avx2 avx512 avx512bf16 amx ;;
	experts/near.h | shared/experts.h | shared/grids.h | shared/inline.h | shared/kernels.h | shared/linear.h | shared/quantize.h | shared/tiles_count.h | sizes.h) echo generic ;;
	shared/tiles.h | linear/amx_bf16.h | linear/amx_quant_tiles.h | linear/w8a8/amx_body.h) echo x86 soft ;;
	shared/vec_neon.h | shared/target_neon.h | linear/some_neon.h) echo neon ;;
	linear/target_neon.h | linear/vec128.h) echo linear_neon ;;
	linear/int8/dots.h | linear/w8a8/neon.h) echo dots0 dots1 dots2 ;;
	linear/int8/neon.h) echo dots0 dots1 dots2 dots1_planes2 dots2_planes2 ;;
	shared/target_end.h) echo avx2 avx512 avx512bf16 amx ;; # it ends a target that another header began
	shared/target_*.h | linear/target_*.h) echo x86 ;;
	linear/amx_quant.h | linear/blocks.h | linear/panel.h | linear/stored.h) echo generic ;;
	linear/stored_expand.h) echo vl4 vl8 vl16 ;;
	linear/vec256.h) echo linear_avx2 ;;
	linear/vec512.h) echo linear_avx512 linear_avx512bf16 ;;
	linear/body.h) echo linear_neon linear_avx2 linear_avx512 ;;
	linear/unpack.h) echo linear_neon linear_avx2 linear_avx512 linear_avx512bf16 ;;
	linear/amx_quant_unpack.h | linear/pairs.h) echo linear_avx512bf16 ;;
	linear/int8/body.h | linear/w8a8/amx.h | linear/w8a8/w8a8.h) echo generic ;;
	linear/int8/int8.h) echo generic planes2 ;;
	linear/int8/vnni.h) echo x86 planes2 ;;
	linear/int8/avx2.h) echo avx2_pairs avx2_dot ;;
	linear/w8a8/body.h) echo w8_tile ;;
	esac
}

# flags TARGET prints what its .c files define and include before the header.
flags() {
	case $1 in
	generic) echo -DVAPP_VECTOR=0 ;;
	neon) echo -DVAPP_VECTOR=128 -include shared/target_neon.h ;;
	dots?_planes2) n=${1%_planes2} && echo "-DARM_SET=${n#dots} -DPLANES=2" ;;
	dots?) echo "-DARM_SET=${1#dots}" ;;
	avx2) echo -DVAPP_VECTOR=256 -include shared/target_avx2.h ;;
	avx512) echo -DVAPP_VECTOR=512 -include shared/target_avx512.h ;;
	avx512bf16) echo -DVAPP_VECTOR=512 -DVAPP_PAIRS -include shared/target_avx512bf16.h ;;
	amx) echo -DVAPP_VECTOR=512 -DVAPP_TILES -include shared/target_amx.h ;;
	amx_soft) echo -DVAPP_VECTOR=512 -DVAPP_TILES -DVAPP_SOFT_TILES -include shared/target_amx.h ;;
	x86) ;;
	soft) echo -DVAPP_SOFT_TILES ;;
	planes2) echo -DPLANES=2 ;;
	avx2_pairs) echo -DDOT=0 ;;
	avx2_dot) echo -DDOT=1 ;;
	w8_tile) echo -DW8_TILE=4 ;;
	vl*) echo "-DVL=${1#vl}" ;;
	linear_*) echo -include "linear/target_${1#linear_}.h" ;;
	esac
}

failed=
for h in $(find . -name '*.h' | sed 's|^\./||' | LC_ALL=C sort); do
	list=$(targets "$h")
	if [ -z "$list" ]; then
		echo "check-headers: $h has no target: add it to targets in scripts/check-headers.sh" >&2
		failed=1
	fi
	for t in $list; do
		with=$cc
		case $t in
		generic | w8_tile | vl4) ;;
		neon | linear_neon | dots*) with=$arm && [ "$arm" ] || continue ;;
		*) [ "$x86" ] || continue ;;
		esac
		# shellcheck disable=SC2046 # flags are words
		if ! out=$("$with" -O2 -fsyntax-only -Werror=implicit-function-declaration $(flags "$t") -x c "$h" 2>&1); then
			echo "check-headers: $h does not compile alone for $t:" >&2
			echo "$out" >&2
			failed=1
		fi
	done
done

# Each line is a file and one that it includes; tsort names the files of a cycle.
edges() {
	find . -name '*.h' | sed 's|^\./||' | while read -r h; do
		sed -n 's/^#include "\(.*\)"$/\1/p' "$h" | while read -r i; do
			echo "$h $(realpath --relative-to=. "$(dirname "$h")/$i")"
		done
	done
}
if ! out=$(edges | tsort 2>&1 >/dev/null); then
	echo "check-headers: headers include each other:" >&2
	echo "$out" >&2
	failed=1
fi
[ -z "$failed" ]
