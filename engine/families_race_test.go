//go:build race

package engine_test

// twinFamilies are two of the small checkpoints, which have every class of page between them:
// the detector sees what goroutines share, and arithmetic takes ten times as long under it.
var twinFamilies = []string{"tiny-gpt-oss", "tiny-qwen35"}

// racing reports whether the race detector is on, under which arithmetic is slow.
const racing = true
