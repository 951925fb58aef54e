package tokenizer

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// limitMemory bounds this process's address space to what it has now and bytes
// more, and keeps it from writing a core when it runs into that.
func limitMemory(bytes int64) error {
	statm, err := os.ReadFile("/proc/self/statm")
	if err != nil {
		return fmt.Errorf("reading this process's size: %w", err)
	}
	var pages int64
	if _, err := fmt.Sscan(string(statm), &pages); err != nil {
		return fmt.Errorf("reading this process's size: %w", err)
	}
	size := uint64(pages*int64(os.Getpagesize()) + bytes)
	if err := unix.Setrlimit(unix.RLIMIT_CORE, &unix.Rlimit{}); err != nil {
		return fmt.Errorf("limiting the core size: %w", err)
	}
	if err := unix.Setrlimit(unix.RLIMIT_AS, &unix.Rlimit{Cur: size, Max: size}); err != nil {
		return fmt.Errorf("limiting memory: %w", err)
	}
	return nil
}
