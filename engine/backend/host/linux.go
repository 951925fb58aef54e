//go:build linux

package host

import (
	"os"
	"runtime"

	"golang.org/x/sys/unix"

	"vapp.dev/engine/backend"
)

func probe() (backend.Facts, error) {
	f := read(os.DirFS("/"))
	f.PageBytes = int64(os.Getpagesize())
	f.Cores = runtime.NumCPU()
	var set unix.CPUSet
	if err := unix.SchedGetaffinity(0, &set); err == nil {
		f.Cores = set.Count()
	}
	if q := quota(os.DirFS("/")); q > 0 && q < f.Cores {
		f.Cores = q
	}
	return f, nil
}
