//go:build !race

package engine_test

// twinFamilies are the small checkpoints that have every class of page and every kind of op between
// them. They run all axes; furtherFamilies has the others.
var twinFamilies = []string{"tiny-llama3-tied", "tiny-qwen2", "tiny-qwen3", "tiny-gpt-oss", "tiny-gemma4", "tiny-gemma4-moe", "tiny-gemma4-e", "tiny-qwen35"}

// racing reports whether the race detector is on, under which arithmetic is slow.
const racing = false
