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
// cannot be used, which one product shows; neither where there is none. What the device lacks is not the
// library's fault. Nothing stays on the device, and a library that has multiplied is not tried again.
func TestProbeLibrary(t *testing.T) {
	t.Setenv("VAPP_LIBCUDA", cudatest.Driver(t))
	defer emulate(t, "reset")
	defer cuda.ForgetLibraries()
	for _, c := range []struct{ library, settings, version, unusable string }{
		{cudatest.BLAS(t), "version=120901", "12.9.1", ""},
		{cudatest.BLAS(t), "version=110800", "", "cuBLASLt is 11.8.0 and 12.0.0 is needed"},
		{cudatest.BLAS(t), "version=140000", "", "cuBLASLt is 14.0.0 and 13 is the newest major version that this vapp calls: "},
		{cudatest.BLAS(t), "create=1", "", "device 0, emulated GPU: cublasLtCreate: CUBLAS_STATUS_NOT_INITIALIZED: "},
		{cudatest.BLAS(t), "create=3", "13.0.0", ""},
		{cudatest.BLAS(t), "algorithms=none", "", "cuBLASLt has no algorithm for 64 rows times 64×64 of bf16 "},
		{cudatest.BLAS(t), "matmul=13", "", "device 0, emulated GPU: cublasLtMatmul: CUBLAS_STATUS_EXECUTION_FAILED: "},
		{cudatest.BLAS(t), "fails=2", "13.0.0", ""},
		{cudatest.BLAS(t), "fails=3", "", "device 0, emulated GPU: cublasLtMatmul: CUBLAS_STATUS_NOT_SUPPORTED: "},
		{cudatest.BLAS(t), "wrong=1", "", "device 0, emulated GPU: cuBLASLt 13.0.0 multiplies wrongly: algorithm 0 has 577 for 576: "},
		{"libm.so.6", "", "", "cuBLASLt cannot be used (libm.so.6 has no cublasLtGetVersion)"},
		{driver.NoLibrary, "", "", ""},
	} {
		t.Setenv("VAPP_LIBCUBLASLT", c.library)
		t.Setenv("VAPP_EMULATED_CUBLASLT", c.settings)
		emulate(t, "reset")
		cuda.ForgetLibraries()
		f, err := cuda.Opener{}.Probe()
		if n := driver.Counted("taken"); n != 0 || strings.Contains(f.NoCUBLASLt, "\n") {
			t.Errorf("%s: %d bytes are taken, %q", c.settings, n, f.NoCUBLASLt)
		}
		if err != nil || f.CUBLASLt != c.version || !strings.HasPrefix(f.NoCUBLASLt, c.unusable) || (f.NoCUBLASLt == "") != (c.unusable == "") {
			t.Errorf("%s %s: %q, %q, %v", c.library, c.settings, f.CUBLASLt, f.NoCUBLASLt, err)
		}
	}
	t.Setenv("VAPP_LIBCUBLASLT", cudatest.BLAS(t))
	t.Setenv("VAPP_EMULATED_CUBLASLT", "")
	cuda.ForgetLibraries()
	products := func(settings string) int64 {
		emulate(t, "reset,"+settings)
		before := driver.Counted("vapp_emulated_host")
		if f, err := (cuda.Opener{}).Probe(); err != nil || f.CUBLASLt != "13.0.0" || f.NoCUBLASLt != "" {
			t.Errorf("%s: %q, %q, %v", settings, f.CUBLASLt, f.NoCUBLASLt, err)
		}
		return driver.Counted("vapp_emulated_host") - before
	}
	for _, c := range []struct {
		settings string
		want     bool
	}{{"fault=cuDevicePrimaryCtxRetain:1:2", false}, {"fault=cuMemAlloc:4:2", false}, {"", true}, {"", false}} {
		if n := products(c.settings); (n > 0) != c.want {
			t.Errorf("%q: %d products", c.settings, n)
		}
	}
}

// TestFindLibrary: the library that was found is named with the device on which it multiplied, or with what the device lacks.
func TestFindLibrary(t *testing.T) {
	t.Setenv("VAPP_LIBCUDA", cudatest.Driver(t))
	defer emulate(t, "reset")
	defer cuda.ForgetLibraries()
	blas, none := cudatest.BLAS(t), driver.NoLibrary
	const device = "device 0, emulated GPU"
	for _, c := range []struct {
		library, emulated, settings string
		want                        cuda.Library // of texts their beginnings
	}{
		{blas, "", "", cuda.Library{Version: "13.0.0", Path: blas, Device: device}},
		{blas, "devices=2,old=1", "", cuda.Library{Version: "13.0.0", Path: blas, Device: "device 1, "}},
		{blas, "fault=cuDevicePrimaryCtxRetain:1:2", "", cuda.Library{Version: "13.0.0", Path: blas, Device: device, Untried: device + ": 0.50 GiB are needed and "}},
		{blas, "fault=cuMemAlloc:4:2", "", cuda.Library{Version: "13.0.0", Path: blas, Device: device, Untried: device + ": cuMemAlloc: CUDA_ERROR_OUT_OF_MEMORY"}},
		{blas, "", "wrong=1", cuda.Library{Path: blas, Device: device, Unusable: device + ": cuBLASLt 13.0.0 multiplies wrongly: "}},
		{"libm.so.6", "", "", cuda.Library{Device: device, Unusable: "cuBLASLt cannot be used (libm.so.6 has no "}},
		{none, "", "", cuda.Library{Absent: "no cuBLASLt (VAPP_LIBCUBLASLT is none): "}},
	} {
		t.Setenv("VAPP_LIBCUBLASLT", c.library)
		t.Setenv("VAPP_EMULATED_CUBLASLT", c.settings)
		emulate(t, "reset,"+c.emulated)
		cuda.ForgetLibraries()
		all, err := driver.Devices()
		if err != nil {
			t.Fatal(err)
		}
		got := cuda.FindLibrary(all)
		for _, text := range [][2]string{{got.Version, c.want.Version}, {got.Path, c.want.Path}, {got.Device, c.want.Device}, {got.Untried, c.want.Untried}, {got.Unusable, c.want.Unusable}, {got.Absent, c.want.Absent}} {
			if !strings.HasPrefix(text[0], text[1]) || (text[0] == "") != (text[1] == "") || strings.Contains(text[0], "\n") {
				t.Errorf("%s %s %s: %+v, want %+v", c.library, c.emulated, c.settings, got, c.want)
				break
			}
		}
		if n := driver.Counted("taken"); n != 0 {
			t.Errorf("%s %s %s: %d bytes are taken", c.library, c.emulated, c.settings, n)
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
