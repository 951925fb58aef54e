//go:build windows

package host

import (
	"fmt"
	"os"
	"runtime"
	"unsafe"

	"golang.org/x/sys/windows"

	"vapp.dev/engine/backend"
)

// memoryStatus is MEMORYSTATUSEX.
type memoryStatus struct {
	length, load                                          uint32
	total, free, pageTotal, pageFree, virtTotal, virtFree uint64
	extended                                              uint64
}

// probe uses GlobalMemoryStatusEx. Caches and large pages stay 0.
func probe() (backend.Facts, error) {
	f := backend.Facts{
		MemoryLimit: LimitSystem,
		Cores:       runtime.NumCPU(),
		PageBytes:   int64(os.Getpagesize()),
		Device:      os.Getenv("PROCESSOR_IDENTIFIER"),
	}
	s := memoryStatus{length: uint32(unsafe.Sizeof(memoryStatus{}))}
	call := windows.NewLazySystemDLL("kernel32.dll").NewProc("GlobalMemoryStatusEx")
	if ok, _, err := call.Call(uintptr(unsafe.Pointer(&s))); ok == 0 {
		return f, fmt.Errorf("GlobalMemoryStatusEx: %w", err)
	}
	f.TotalBytes, f.FreeBytes = int64(s.total), int64(s.free)
	return f, nil
}
