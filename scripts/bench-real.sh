#!/bin/sh
# Runs the models of the profiles as they are published, with random weights: whole
# where that fits 16 GB, else their first layers, one of each kind at least.
set -eu
cd "$(dirname "$0")/.."
run() { # layers (0: all), profile
	bin/vapp bench engine --prompt-len 128 --output-len 32 --repeat 1 --layers "$1" "$2" 2>/dev/null ||
		{ echo "bench-real: $2 failed; its error:" >&2; bin/vapp bench engine --prompt-len 128 --output-len 32 --repeat 1 --layers "$1" "$2" >&2; exit 1; }
}
run 0 profiles/llama-3.2-1b.cue
run 0 profiles/gpt-oss-20b.cue
run 0 tests/bench/full/qwen2-7b-fp8.cue
run 12 profiles/qwen2-7b.cue
run 12 profiles/deepseek-r1-qwen-7b.cue
run 12 profiles/gemma4-fp8.cue
run 6 profiles/gemma4-bf16.cue
run 6 profiles/gemma4-31b.cue
run 12 profiles/qwen35-27b-fp8.cue
