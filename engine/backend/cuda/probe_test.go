//go:build linux && cgo && cuda

package cuda_test

import (
	"errors"
	"strings"
	"testing"

	"vapp.dev/engine/backend"
	"vapp.dev/engine/backend/cuda"
	"vapp.dev/engine/backend/cuda/driver"
	"vapp.dev/kernels/cuda/cudatest"
)

// TestProbe: of several devices, Probe returns the first that has kernels, with the memory
// that other processes leave free. Without one, it returns the first device, for planning
// only.
func TestProbe(t *testing.T) {
	t.Setenv("VAPP_LIBCUDA", cudatest.Driver(t))
	defer emulate(t, "reset")
	for _, c := range []struct {
		settings, capability string
		free                 int64
		planOnly             bool
	}{
		{"devices=1", "9.0", 8 << 30, false},
		{"devices=3,old=2,held=1073741824", "9.0", 7 << 30, false},
		{"devices=2,old=2", "7.5", 8 << 30, true},
		{"driver=12000", "9.0", 8 << 30, false},
		{"driver=12040,capability=10.0", "10.0", 8 << 30, true},
		{"fault=nvmlInit:1:1", "9.0", 0, false},
		{"held=-1073741824", "9.0", 0, false}, // for a MIG instance, the whole device's free memory is reported
	} {
		emulate(t, "reset,"+c.settings)
		before := driver.Counted("nvmlInit")
		f, err := cuda.Opener{}.Probe()
		if err != nil {
			t.Fatal(err)
		}
		if f.Capability != c.capability || f.FreeBytes != c.free || (f.PlanOnly != "") != c.planOnly {
			t.Errorf("%s: capability %s, %d bytes free, plan-only %q", c.settings, f.Capability, f.FreeBytes, f.PlanOnly)
		}
		if n := driver.Counted("nvmlInit") - before; n != 1 {
			t.Errorf("%s: the management library was begun %d times", c.settings, n)
		}
	}
}

// TestProbeLibrary: the facts have the version of the machine's cuBLASLt, or why the one that was found
// cannot be used; neither where there is none.
func TestProbeLibrary(t *testing.T) {
	t.Setenv("VAPP_LIBCUDA", cudatest.Driver(t))
	for _, c := range []struct{ library, settings, version, unusable string }{
		{cudatest.BLAS(t), "version=120901", "12.9.1", ""},
		{cudatest.BLAS(t), "version=110800", "", "cuBLASLt is 11.8.0 and 12.0.0 is needed"},
		{"libm.so.6", "", "", "no cuBLASLt (libm.so.6 has no cublasLtGetVersion)"},
		{driver.NoLibrary, "", "", ""},
	} {
		t.Setenv("VAPP_LIBCUBLASLT", c.library)
		t.Setenv("VAPP_EMULATED_CUBLASLT", c.settings)
		f, err := cuda.Opener{}.Probe()
		if err != nil || f.CUBLASLt != c.version || !strings.HasPrefix(f.NoCUBLASLt, c.unusable) || (f.NoCUBLASLt == "") != (c.unusable == "") {
			t.Errorf("%s %s: %q, %q, %v", c.library, c.settings, f.CUBLASLt, f.NoCUBLASLt, err)
		}
	}
}

// TestOpenElsewhere: Open rejects a plan for a device that this machine lacks, and one whose
// memory other processes use.
func TestOpenElsewhere(t *testing.T) {
	open := starting(t)
	defer emulate(t, "reset")
	emulate(t, "reset,held=8500000000")
	_, err := open()
	var short *driver.MemoryError
	if !errors.As(err, &short) || !strings.Contains(err.Error(), "device 0, emulated GPU: ") || !strings.Contains(err.Error(), "end the processes that hold the rest") {
		t.Errorf("a device that others hold: %v", err)
	}
	f, err := cuda.Opener{}.Probe()
	if err != nil {
		t.Fatal(err)
	}
	f.TotalBytes++
	asked := driver.Counted("nvmlInit")
	_, err = cuda.Opener{}.Open(f, backend.Settings{}, backend.Reservation{})
	if n := driver.Counted("nvmlInit"); n != asked {
		t.Errorf("to open a device the management library was asked %d times", n-asked)
	}
	var none *driver.NoSuchDevice
	if !errors.As(err, &none) || !strings.Contains(err.Error(), "CUDA_VISIBLE_DEVICES") {
		t.Errorf("a device that is not here: %v", err)
	}
}
