package enginebench

import (
	"bytes"
	"fmt"
	"os"
	"strconv"
	"strings"
)

// peak measures the peak of resident memory since beginPeak.
type peak struct{ err error }

// beginPeak resets the kernel's peak counter of this process.
func beginPeak() peak {
	return peak{os.WriteFile("/proc/self/clear_refs", []byte("5"), 0)}
}

// bytes returns the peak since beginPeak.
func (p peak) bytes() (int64, error) {
	if p.err != nil {
		return 0, p.err
	}
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return 0, err
	}
	for line := range bytes.Lines(status) {
		if rest, ok := strings.CutPrefix(string(line), "VmHWM:"); ok {
			kib, err := strconv.ParseInt(strings.TrimSuffix(strings.TrimSpace(rest), " kB"), 10, 64)
			return kib << 10, err
		}
	}
	return 0, fmt.Errorf("the kernel reports no VmHWM")
}
