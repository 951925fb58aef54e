#!/usr/bin/env bash
# Measures vapp beside llama.cpp (and PyTorch, where it is) on the same files, and
# writes docs/performance/<cpu>.md, and docs/performance.md from all such pages.
#
#   scripts/bench-peer.sh [PART[,PART...]|build|prepare|report]
#
# Everything is fetched, built and made once, in BENCH_DIR (default .bench); what is
# there is left alone. Cold it takes half an hour more than warm: the compiler's time.
#
# BENCH_DIR     where llama.cpp, models and results are kept
# ROUNDS        rounds, in each of which every side runs twice in turns, what is long once (1)
# MINUTES       parts that would end later are left out, and named (no limit)
# JOBS          compilers at once (one for each core)
# TORCH_PYTHON  a Python with torch and transformers (default: that of `make golden`)
set -euo pipefail
cd "$(dirname "$0")/.."

part=${1:-}
dir=${BENCH_DIR:-.bench}
jobs=${JOBS:-$(nproc)}
python=${PYTHON:-python3}

# llama.cpp as llama-cpp-python ships it: one archive, pinned by digest.
release=0.3.36
sha256=832db0699007f1be95a7e41ef12e88926b02ba836461e36a36372db2760c1a2e
commit=0c1e57098
tools='llama-bench llama-batched-bench llama-server llama-quantize'

fail() {
	echo "bench-peer: $1" >&2
	exit 1
}
have() { command -v "$1" >/dev/null; }
# gib AMOUNT_IN_KIB NEEDED_GIB WHAT
gib() { [ "$1" -ge $(($2 << 20)) ] || fail "$3: $(($1 >> 20)) GiB are left, $2 are needed"; }

[ "$(uname -s)" = Linux ] || fail "it reads /proc and measures Linux only"
mkdir -p "$dir/models"
dir=$(cd "$dir" && pwd)

fetch() {
	local src=$dir/llama.cpp/src
	mkdir -p "$src"
	if ! echo "$sha256  $src/llama_cpp_python-$release.tar.gz" | sha256sum --check --status 2>/dev/null; then
		have "$python" && "$python" -m pip --version >/dev/null 2>&1 ||
			fail "$python with pip fetches llama.cpp's sources, and is not there (Debian, Ubuntu: apt-get install python3-pip)"
		echo "bench-peer: fetching llama.cpp's sources (68 MB)" >&2
		echo "llama-cpp-python==$release --hash=sha256:$sha256" >"$src/requirements.txt"
		"$python" -m pip download --quiet --disable-pip-version-check --no-deps --no-binary llama-cpp-python \
			--require-hashes -r "$src/requirements.txt" -d "$src" >"$src/pip.log" 2>&1 ||
			fail "pip could not download llama-cpp-python $release; is there a network? ($src/pip.log; the archive itself may be put into that directory)"
	fi
	if [ ! -d "$src/llama_cpp_python-$release" ]; then # whole or not at all
		rm -rf "$src/new"
		mkdir "$src/new"
		tar xzf "$src/llama_cpp_python-$release.tar.gz" -C "$src/new"
		mv "$src/new/llama_cpp_python-$release" "$src/"
	fi
	# The intrinsic tells gcc 12 that it reads 8 bytes of 64: the stores to the rest of
	# the tile configuration are deleted, and its load faults. A barrier keeps them.
	local mmq=$src/llama_cpp_python-$release/vendor/llama.cpp/ggml/src/ggml-cpu/amx/mmq.cpp
	grep -q 'peer-fix' "$mmq" ||
		sed -i 's|^    _tile_loadconfig(&tc);|    __asm__ volatile("" : : "r"(\&tc) : "memory"); /* peer-fix */\n&|' "$mmq"
	grep -q 'peer-fix' "$mmq" || fail "$mmq is not as expected; remove $dir/llama.cpp/src and run again"
}

build() {
	local root=$dir/llama.cpp tool
	# Natively means for this processor: another one builds again.
	local want="llama-cpp-python $release, commit $commit"
	local cpu
	cpu=$(grep -m 1 '^flags' /proc/cpuinfo | sha256sum | cut -c 1-16)
	if [ "$(cat "$root/version" 2>/dev/null)" = "$want" ] && [ "$(cat "$root/processor" 2>/dev/null)" = "$cpu" ]; then
		return
	fi
	for tool in cmake ninja cc c++; do
		have $tool || fail "$tool builds llama.cpp, and is not on the path (Debian, Ubuntu: apt-get install cmake ninja-build g++)"
	done
	gib "$(df -Pk "$dir" | awk 'NR==2 {print $4}')" 3 "the disk of $dir"
	fetch
	cmake -G Ninja -S "$root/src/llama_cpp_python-$release/vendor/llama.cpp" -B "$root/build" -DCMAKE_BUILD_TYPE=Release \
		-DGGML_NATIVE=ON -DGGML_OPENMP=ON -DGGML_LLAMAFILE=ON -DGGML_CPU_REPACK=ON -DGGML_CCACHE=OFF -DBUILD_SHARED_LIBS=OFF \
		-DLLAMA_BUILD_TESTS=OFF -DLLAMA_BUILD_EXAMPLES=OFF -DLLAMA_BUILD_APP=OFF -DLLAMA_BUILD_UI=OFF \
		-DLLAMA_USE_PREBUILT_UI=OFF -DLLAMA_OPENSSL=OFF -DLLAMA_BUILD_COMMIT=$commit -DLLAMA_BUILD_NUMBER=0 >"$root/build.log" 2>&1 ||
		fail "cmake refuses llama.cpp; see $root/build.log"
	# shellcheck disable=SC2086 # one word for each tool
	echo "bench-peer: building llama.cpp: twenty minutes on two cores; a build that was interrupted goes on" >&2
	nice -n 5 cmake --build "$root/build" -j"$jobs" --target $tools >>"$root/build.log" 2>&1 ||
		fail "llama.cpp does not build; see the end of $root/build.log"
	mkdir -p "$root/bin"
	for tool in $tools; do cp "$root/build/bin/$tool" "$root/bin/"; done
	echo "$cpu" >"$root/processor"
	echo "$want" >"$root/version"
}

venv() {
	local stamp=$dir/venv/ready
	cmp -s tests/peer/requirements.txt "$stamp" && return
	echo "bench-peer: fetching numpy and gguf" >&2
	rm -rf "$dir/venv"
	"$python" -m venv "$dir/venv" || fail "$python makes no virtual environment (Debian, Ubuntu: apt-get install python3-venv)"
	"$dir/venv/bin/pip" install --quiet --disable-pip-version-check -r tests/peer/requirements.txt >"$dir/venv/pip.log" 2>&1 ||
		fail "pip could not install them; is there a network? ($dir/venv/pip.log)"
	cp tests/peer/requirements.txt "$stamp"
}

# make_file NAME COMMAND...: runs COMMAND FILE, and keeps FILE as the model NAME if all went well.
make_file() {
	local name=$1 tmp=$dir/models/.new.gguf
	shift
	[ -e "$dir/models/$name.gguf" ] && return
	echo "bench-peer: making $name.gguf" >&2
	gib "$(df -Pk "$dir" | awk 'NR==2 {print $4}')" 4 "the disk of $dir"
	"$@" "$tmp" >"$dir/models/$name.log" 2>&1 || fail "$name.gguf could not be made; see $dir/models/$name.log"
	mv "$tmp" "$dir/models/$name.gguf"
}
random_llama() { venv && nice -n 5 "$dir/venv/bin/python" tests/peer/llama1b.py "$1"; }
quantized() { nice -n 5 "$dir/llama.cpp/bin/llama-quantize" --allow-requantize "$dir/models/$1.gguf" "$3" "$2" "$(nproc)"; }

models() {
	local default=$PWD/models/SmolLM2-135M-Instruct.Q4_1.gguf form
	[ -f "$default" ] || fail "the default model is not there: make model"
	ln -sf "$default" "$dir/models/smollm2-q4_1.gguf"
	make_file llama1b-bf16 random_llama
	for form in Q8_0 Q4_0 Q4_K_M; do
		make_file "llama1b-$(echo $form | tr '[:upper:]' '[:lower:]')" quantized llama1b-bf16 $form
	done
	make_file smollm2-bf16 quantized smollm2-q4_1 BF16
}

# The program that holds llama.cpp's model between turns, on the library that was built.
turns() {
	local root=$dir/llama.cpp src
	src=$root/src/llama_cpp_python-$release/vendor/llama.cpp
	[ "$root/bin/turns" -nt tests/peer/resident/turns.cpp ] && [ "$root/bin/turns" -nt "$root/version" ] && return
	[ -f "$root/build/src/libllama.a" ] || fail "llama.cpp's library is not in $root/build; remove $root/version and run again"
	c++ -O2 -I "$src/include" -I "$src/ggml/include" tests/peer/resident/turns.cpp -o "$root/bin/turns" "$root/build/src/libllama.a" \
		"$root/build/ggml/src/libggml.a" "$root/build/ggml/src/libggml-cpu.a" "$root/build/ggml/src/libggml-base.a" \
		-fopenmp -pthread -ldl -lm >"$root/turns.log" 2>&1 || fail "tests/peer/resident/turns.cpp does not build; see $root/turns.log"
}

if [ "$part" = build ]; then
	build
	exit 0
fi
go build -trimpath -o "$dir/peer" ./tests/peer
[ "$part" = prepare ] || "$dir/peer" -check -part "$part"
if [ "$part" != report ]; then
	gib "$(awk '/^MemAvailable/ {print $2}' /proc/meminfo)" 8 memory # all sides are loaded at once
	build
	turns
	models
fi
[ "$part" = prepare ] && exit 0

torch=${TORCH_PYTHON:-$PWD/.venv-golden/bin/python}
if ! { [ -x "$torch" ] && LD_LIBRARY_PATH=$(dirname "$torch")/../stubs "$torch" -c 'import torch, transformers' 2>/dev/null; }; then
	echo "bench-peer: PyTorch is not measured: $torch has no torch and transformers (TORCH_PYTHON names another)" >&2
	torch=
fi
[ "$part" = report ] || cc -O3 -march=native -pthread tests/peer/limits/limits.c -o "$dir/limits" || fail "cc does not compile tests/peer/limits/limits.c"
# Its packages are compiled here, not within what is measured.
[ "$part" = report ] || go test -tags streams -count=1 -run '^$' ./appliance >/dev/null || fail "appliance's tests do not build"
exec "$dir/peer" -dir "$dir" -part "$part" -torch "$torch" -rounds "${ROUNDS:-1}" -time "${MINUTES:-0}m"
