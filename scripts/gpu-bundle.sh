#!/bin/sh
# Makes what `make gpu-check` runs on a machine with a GPU that has no Go and no network:
#
#   scripts/gpu-bundle.sh [DIR]   (default .cache/gpu-bundle; DIR.tar.gz is beside it)
#
# In it: vapp with the backend cuda, the test binaries of the backend and of the models with
# their small checkpoints, the compiled kernels, profiles, and gpu-check, which works through them:
#
#   tar xzf gpu-bundle.tar.gz && gpu-bundle/gpu-check --out report
set -eu
cd "$(dirname "$0")/.."
dir=${1:-.cache/gpu-bundle}
most=60 # MB that the archive may have

rm -rf "$dir" "$dir.tar.gz"
mkdir -p "$dir/tests/models" "$dir/tests/cuda" "$dir/served"
# The binaries have the kernels beside them, once: gpu-check names the directory. With
# VAPP_NO_FATBIN there are none, for the emulated driver.
overlay=$(mktemp)
trap 'rm -f "$overlay"' EXIT
if [ -z "${VAPP_NO_FATBIN:-}" ]; then
	scripts/kernels.sh embed # what is built already stays
	mkdir "$dir/kernels"
	cp kernels/cuda/image/built/*.zip "$dir/kernels/"
fi
find "$PWD/kernels/cuda/image/built" -name '*.zip' | sed 's/.*/"&": ""/' | paste -sd, | sed 's/.*/{"Replace": {&}}/' >"$overlay"

# Symbols and line tables are two thirds of a Go binary, and of no use there.
small='-s -w -extldflags=-Wl,--gc-sections'
scripts/cuda-run.sh go build -trimpath -overlay "$overlay" -tags cuda -ldflags "$small" -o "$dir/vapp" ./cmd/vapp
CGO_ENABLED=0 go build -trimpath -ldflags "-s -w" -o "$dir/gpu-check" ./tests/gpu
scripts/cuda-run.sh go test -trimpath -overlay "$overlay" -tags cuda,soak -ldflags "$small" -c -o "$dir/tests/cuda.test" ./engine/backend/cuda
scripts/cuda-run.sh go test -trimpath -overlay "$overlay" -tags cuda -ldflags "$small" -c -o "$dir/tests/models.test" ./engine/models

# The small checkpoints whose logits are recorded, and these.
mkdir -p "$dir/tests/models/testdata/golden"
cp -r engine/models/testdata/lora engine/models/testdata/media engine/models/testdata/tiny-*-tower "$dir/tests/models/testdata/"
for f in engine/models/testdata/golden/tiny-*.safetensors; do
	cp "$f" "$dir/tests/models/testdata/golden/"
	checkpoint=engine/models/testdata/$(basename "$f" .safetensors)
	[ ! -d "$checkpoint" ] || cp -R "$checkpoint" "$dir/tests/models/testdata/"
done
if [ -d engine/backend/cuda/testdata ]; then cp -R engine/backend/cuda/testdata "$dir/tests/cuda/testdata"; fi
cp -R tests/gpu/profiles "$dir/profiles"
cp tests/gpu/torch_gpu.py "$dir/"
cp tests/gpu/served/config.json engine/models/testdata/tiny-llama3-tied/tokenizer.json \
	engine/models/testdata/tiny-llama3-tied/tokenizer_config.json "$dir/served/"
git describe --tags --always --dirty >"$dir/VERSION" 2>/dev/null || echo "no version" >"$dir/VERSION"

tar -C "$(dirname "$dir")" -cf - "$(basename "$dir")" | gzip -9 >"$dir.tar.gz"
bytes=$(wc -c <"$dir.tar.gz")
echo "$dir.tar.gz: $((bytes / 1000000)) MB, of which at most $most may be"
[ "$bytes" -lt $((most * 1000000)) ]
