#!/bin/sh
# Makes what gpu-check runs on a machine with a GPU that has no Go and no network:
#
#   scripts/gpu-bundle.sh [DIR]   (default .cache/gpu-bundle; DIR.tar.xz is beside it)
#
# In it: vapp with the backend cuda, the test binaries of the backend and of the models with
# small checkpoints, the compiled kernels, profiles, and gpu-check, which works through them:
#
#   tar xJf gpu-bundle.tar.xz && gpu-bundle/gpu-check --out report
#
# The kernels are those of VAPP_CUDA_ARCHS, by default of 90a (H100, H200) alone. Seven checkpoints whose
# kernels and layers others have too are left out. VAPP_BUNDLE_ALL=1 has the kernels of all architectures and all checkpoints.
# VAPP_XZ_PRESET=0 compresses fast, and then the archive may be of any size.
set -eu
cd "$(dirname "$0")/.."
dir=${1:-.cache/gpu-bundle}
preset=${VAPP_XZ_PRESET:-9}
most=35 # MiB that the archive may have
left_out="ernie internlm3 ministral3 mistral qwen2 qwen2-gguf smollm3" # dense, with the layers and the formats of others
if [ -n "${VAPP_BUNDLE_ALL:-}" ]; then
	most=60 left_out=
else
	export VAPP_CUDA_ARCHS="${VAPP_CUDA_ARCHS:-90a}"
fi
command -v xz >/dev/null || {
	echo "gpu-bundle: xz is not on the path: install xz-utils" >&2
	exit 1
}

rm -rf "$dir" "$dir.tar.gz" "$dir.tar.xz"
mkdir -p "$dir/tests/models" "$dir/tests/cuda" "$dir/served"
# The binaries have the kernels beside them, once: gpu-check names the directory. With
# VAPP_NO_KERNELS there are none, for the emulated driver.
overlay=$(mktemp)
trap 'rm -f "$overlay"' EXIT
if [ -z "${VAPP_NO_KERNELS:-}" ]; then
	scripts/kernels.sh embed # what is built already stays
	mkdir "$dir/kernels"
	# Their entries are not compressed here: xz makes a third of them, and deflate leaves it nothing to find.
	python3 - "$dir/kernels" kernels/cuda/image/built/*.zip <<-'END'
		import os, sys, zipfile
		for path in sys.argv[2:]:
		    with zipfile.ZipFile(path) as a, zipfile.ZipFile(os.path.join(sys.argv[1], os.path.basename(path)), "w") as z:
		        for name in a.namelist():
		            z.writestr(zipfile.ZipInfo(name), a.read(name))
	END
fi
find "$PWD/kernels/cuda/image/built" -name '*.zip' | sed 's/.*/"&": ""/' | paste -sd, | sed 's/.*/{"Replace": {&}}/' >"$overlay"

# Symbols and line tables are two thirds of a Go binary, and of no use there.
small='-s -w -extldflags=-Wl,--gc-sections'
scripts/cuda-run.sh go build -trimpath -overlay "$overlay" -tags cuda -ldflags "$small" -o "$dir/vapp" ./cmd/vapp
CGO_ENABLED=0 go build -trimpath -ldflags "-s -w" -o "$dir/gpu-check" ./tests/gpu
scripts/cuda-run.sh go test -trimpath -overlay "$overlay" -tags cuda,soak -ldflags "$small" -c -o "$dir/tests/cuda.test" ./engine/backend/cuda
scripts/cuda-run.sh go test -trimpath -overlay "$overlay" -tags cuda -ldflags "$small" -c -o "$dir/tests/models.test" ./engine/models

# The small checkpoints whose logits are recorded, except those that no backend cuda runs (granite4-h) and those
# left out: TestGoldenCUDA reads their names.
mkdir -p "$dir/tests/models/testdata/golden"
cp -r engine/models/testdata/lora engine/models/testdata/media engine/models/testdata/tiny-*-tower "$dir/tests/models/testdata/"
for f in engine/models/testdata/golden/tiny-*.safetensors; do
	name=$(basename "$f" .safetensors)
	case " tiny-granite4-h $(printf 'tiny-%s ' $left_out)" in
	*" $name "*) continue ;;
	esac
	cp "$f" "$dir/tests/models/testdata/golden/"
	checkpoint=engine/models/testdata/$name
	[ ! -d "$checkpoint" ] || cp -R "$checkpoint" "$dir/tests/models/testdata/"
done
for adapter in "$dir"/tests/models/testdata/lora/*@*/; do
	name=$(basename "$adapter")
	[ -d "$dir/tests/models/testdata/${name%@*}" ] || {
		echo "gpu-bundle: the adapter $name has no checkpoint: take its name out of left_out" >&2
		exit 1
	}
done
for name in $left_out; do echo "tiny-$name"; done >"$dir/tests/models/testdata/golden/left-out"
if [ -d engine/backend/cuda/testdata ]; then cp -R engine/backend/cuda/testdata "$dir/tests/cuda/testdata"; fi
cp -R tests/gpu/profiles "$dir/profiles"
cp tests/gpu/torch_gpu.py "$dir/"
cp tests/gpu/served/config.json engine/models/testdata/tiny-llama3-tied/tokenizer.json \
	engine/models/testdata/tiny-llama3-tied/tokenizer_config.json "$dir/served/"
git describe --tags --always --dirty >"$dir/VERSION" 2>/dev/null || echo "no version" >"$dir/VERSION"

# Binaries stand together, so that what they share is stored once; --x86 turns calls into addresses, which repeat.
cd "$(dirname "$dir")"
name=$(basename "$dir")
{
	for f in gpu-check vapp tests/cuda.test tests/models.test; do echo "$name/$f"; done
	find "$name" \( -type f -o -type d -empty \) ! -path "$name/gpu-check" ! -path "$name/vapp" ! -path "$name/tests/*.test" | LC_ALL=C sort
} | tar -cf - --owner=0 --group=0 -T - | xz --x86 --lzma2="preset=$preset,dict=192MiB" -T1 >"$name.tar.xz"
bytes=$(wc -c <"$name.tar.xz")
echo "$dir.tar.xz: $(awk "BEGIN { printf \"%.1f\", $bytes / 1048576 }") MiB, of which at most $most may be"
[ "$preset" != 9 ] || [ "$bytes" -le $((most * 1048576)) ] || {
	echo "gpu-bundle: the archive is larger than $most MiB: name fewer architectures in VAPP_CUDA_ARCHS" >&2
	exit 1
}
