//go:build !linux

package tokenizer

import (
	"fmt"
	"runtime"
	"syscall"
	"time"
)

func childAttributes() *syscall.SysProcAttr { return nil }

func programOf(_, path string) string { return path }

func firstToDie() {}

// limitMemory fails: there is no sandbox without a memory limit.
func limitMemory(int64) error {
	return unsupportedError(fmt.Sprintf("%s has no limit on a process's memory; templates in requests work on linux only", runtime.GOOS))
}

func privateMemory() (m privateBytes, known bool) { return m, false }

var processStart = time.Now()

// processTime returns the time since this process started, an upper bound on the time of one
// processor.
func processTime() time.Duration { return time.Since(processStart) }
