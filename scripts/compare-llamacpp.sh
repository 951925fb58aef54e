#!/usr/bin/env bash
# Compares vapp with llama.cpp on the same GGUF files, and writes the tables of docs/gguf.md.
#
#   scripts/compare-llamacpp.sh [FAMILY]
#
# llama.cpp is that of scripts/bench-peer.sh, in BENCH_DIR (default .bench). Its converter and its quantizer make
# small random models of each family in each block type, once; that takes an hour on two cores. Nothing
# is fetched after the first build. FAMILY (tiny-qwen3) compares that one and writes no page.
#
# TYPES         the block types that are made, "Q8_0 IQ4_XS" (default: all)
# TORCH_PYTHON  a Python with torch, transformers, safetensors, numpy and, for tiny-ministral3, sentencepiece (default:
#               that of `make golden`, which has no sentencepiece: that family is then named as refused)
set -euo pipefail
cd "$(dirname "$0")/.."

fail() {
	echo "compare-llamacpp: $1" >&2
	exit 1
}
family=${1:-}
torch=${TORCH_PYTHON:-$PWD/.venv-golden/bin/python}
"$torch" -c 'import torch, transformers, safetensors' 2>/dev/null ||
	fail "$torch has no torch, transformers and safetensors: make golden installs them, TORCH_PYTHON names another"

scripts/bench-peer.sh build
dir=${BENCH_DIR:-.bench}
dir=$(cd "$dir" && pwd)
root=$dir/llama.cpp
src=$(echo "$root"/src/llama_cpp_python-*/vendor/llama.cpp)
same=$dir/same
mkdir -p "$same"

if ! [ "$same/same" -nt tests/peer/same/same.cpp ] || ! [ "$same/same" -nt "$root/version" ]; then
	c++ -O2 -I "$src/include" -I "$src/ggml/include" tests/peer/same/same.cpp -o "$same/same" "$root/build/src/libllama.a" \
		"$root/build/ggml/src/libggml.a" "$root/build/ggml/src/libggml-cpu.a" "$root/build/ggml/src/libggml-base.a" \
		-fopenmp -pthread -ldl -lm >"$same/same.log" 2>&1 || fail "tests/peer/same/same.cpp does not build; see $same/same.log"
fi
# shellcheck disable=SC2086 # no family: all
nice -n 5 "$torch" tests/peer/same/convert.py "$src" "$root/bin/llama-quantize" "$same/same" "$same" $family 2>"$same/convert.log" ||
	fail "the files could not be made; see $same/convert.log"

VAPP_VOCABULARIES=$src/models go test ./engine/checkpoint -count=1 -run TestPublishedVocabularies || fail "vapp and llama.cpp split texts into other tokens"
VAPP_SAME_DIR=$same VAPP_SAME_ONLY=$family${family:+.} VAPP_SAME_TABLE=$same/rows.md \
	go test ./engine/models -count=1 -timeout 3h -run TestSameAsLlamaCPP || fail "vapp and llama.cpp differ"
if [ -n "$family" ]; then
	cat "$same/rows.md"
else
	"$torch" tests/peer/same/report.py "$same/rows.md" "$same/refused.txt" "$(cat "$root/version")" docs/gguf.md
fi
