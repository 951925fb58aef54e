//go:build linux && cgo && cuda

package cuda

import (
	"errors"
	"fmt"
	"runtime"
	"slices"

	"vapp.dev/engine/backend"
	"vapp.dev/engine/backend/cuda/driver"
)

// Probe returns the facts of the first device that has kernels, or else of the first device,
// which can be planned for, and whether the machine has a cuBLASLt. Errors are those of
// driver.Devices. Probe allocates nothing on the device.
func (Opener) Probe() (backend.Facts, error) {
	all, err := driver.Devices()
	if err != nil {
		return backend.Facts{}, err
	}
	f := factsOf(all[max(0, slices.IndexFunc(all, hasKernels))])
	f.CUBLASLt, f.NoCUBLASLt = findLibrary()
	return f, nil
}

// findLibrary returns the version of the machine's cuBLASLt, and why one that was found cannot be used.
func findLibrary() (version, unusable string) {
	v, _, err := driver.FindBLAS()
	var none *driver.NoBLAS
	switch {
	case err == nil:
		return driver.BLASVersion(v), ""
	case errors.As(err, &none) && none.Absent:
		return "", ""
	}
	return "", err.Error()
}

// hasKernels reports whether there are kernels for the device that its driver loads.
func hasKernels(i driver.Info) bool {
	_, err := i.Code()
	return err == nil
}

func factsOf(i driver.Info) backend.Facts {
	f := backend.Facts{
		Backend: name, Device: i.Name, TotalBytes: i.Total, FreeBytes: i.Free(), L2Bytes: i.L2, Measured: true, MemoryLimit: "device",
		Cores: runtime.GOMAXPROCS(0), SMs: i.SMs, Capability: i.Capability(), SharedBytes: int64(i.SharedPerSM), Bandwidth: i.Bandwidth,
		Driver: i.CUDA(),
	}
	if _, err := i.Code(); err != nil {
		var old *driver.DriverTooOld
		if f.PlanOnly = "older than compute capability 8.0: planned only"; errors.As(err, &old) {
			f.PlanOnly = err.Error()
		}
	}
	return f
}

// find returns the ordinal of the device with these facts.
func find(f backend.Facts) (int, error) {
	all, err := driver.Devices()
	if err != nil {
		return 0, fmt.Errorf("backend %s: %w", name, err)
	}
	for _, i := range all {
		if i.Name == f.Device && i.Capability() == f.Capability && i.Total == f.TotalBytes {
			return i.Ordinal, nil
		}
	}
	return 0, fmt.Errorf("backend %s: %w", name, &driver.NoSuchDevice{Name: f.Device, Capability: f.Capability, Total: f.TotalBytes, Have: all})
}
