//go:build darwin

package host

import (
	"fmt"
	"os"
	"runtime"

	"golang.org/x/sys/unix"

	"vapp.dev/engine/backend"
)

// probe uses sysctl. Available memory needs Mach calls, which are no system calls, so
// FreeBytes stays 0.
func probe() (backend.Facts, error) {
	f := backend.Facts{
		MemoryLimit: LimitSystem,
		Cores:       runtime.NumCPU(),
		PageBytes:   int64(os.Getpagesize()),
	}
	total, err := unix.SysctlUint64("hw.memsize")
	if err != nil {
		return f, fmt.Errorf("sysctl hw.memsize: %w", err)
	}
	f.TotalBytes = int64(total)
	f.Device, _ = unix.Sysctl("machdep.cpu.brand_string")
	for _, name := range []string{"hw.perflevel0.l2cachesize", "hw.l2cachesize"} {
		if n, err := unix.SysctlUint64(name); err == nil {
			f.L2Bytes = int64(n)
			break
		}
	}
	return f, nil
}
