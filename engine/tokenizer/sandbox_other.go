//go:build !linux

package tokenizer

import (
	"fmt"
	"runtime"
)

// limitMemory refuses: without a limit there is no sandbox.
func limitMemory(int64) error {
	return fmt.Errorf("%s has no limit on a process's memory; templates in requests work on linux only", runtime.GOOS)
}
