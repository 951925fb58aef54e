//go:build linux && cgo && cuda

package cuda

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"testing"

	"vapp.dev/engine/backend"
	"vapp.dev/engine/backend/backendtest"
	"vapp.dev/engine/backend/cuda/driver"
	"vapp.dev/kernels/cuda/cudatest"
	"vapp.dev/kernels/ref"
)

// emulated makes the process use the emulated driver, unless VAPP_GPU says that this machine
// has a GPU.
func emulated(t testing.TB) {
	t.Helper()
	if os.Getenv("VAPP_GPU") != "" {
		hold(t)
		return
	}
	if err := os.Setenv("VAPP_LIBCUDA", cudatest.Driver(t)); err != nil {
		t.Fatal(err)
	}
}

// The order of a row's sum depends on the step: tiles for many rows, warps for few, and
// chunks where many follow each other (see "Batching never changes a token" in the design).
// A device keeps fewer bits of sums of 8-bit products than the emulation.
var suite = backendtest.Suite{Opener: Opener{}, MatrixTolerance: true, CutSums: os.Getenv("VAPP_GPU") != ""}

// TestParts runs the parts of the backends' suite: all cases of the fast ones, every n-th
// case of others. TestSuite, in `make test-cuda`, runs all.
func TestParts(t *testing.T) {
	every := map[string]int{
		"linear": 4, "linear of scaled weights": 9, "experts": 6, "rows": 1, "conv": 3, "delta": 4, "attention": 40,
		"attention of more kinds": 6, "attention with rebuilt keys": 7, "latent attention": 12, "linear of heads": 5, "rope of grids": 5, "resampled positions": 4, "attention of items": 2, "equal": 16, "equal with latent attention": 5, "tokens": 3, "sample": 2, "draft positions": 5,
	}
	eachOf(t, backendtest.Parts(), func(t *testing.T, name string) { suite.Part(t, name, max(1, every[name])) })
}

// eachOf runs parts of the suite. On a GPU each part has its own process, four at once unless
// only one may open the device.
func eachOf(t *testing.T, parts []string, run func(t *testing.T, part string)) {
	t.Helper()
	most := 4
	if os.Getenv("VAPP_GPU") != "" {
		all, err := driver.Devices()
		if err != nil {
			t.Fatal(err)
		}
		if all[0].Exclusive {
			most = 1
		}
	}
	cudatest.Apart(t, most, parts, func(t *testing.T, name string) {
		emulated(t)
		run(t, name)
	})
}

// TestPartsFP8 tests products of fp8 weights with inputs rounded to fp8.
func TestPartsFP8(t *testing.T) {
	s := suite
	s.Settings.Activations = backend.FP8Activations
	every := map[string]int{"linear of scaled weights": 2, "linear of long rows": 1, "experts": 1}
	eachOf(t, slices.Sorted(maps.Keys(every)), func(t *testing.T, name string) { s.Part(t, name, every[name]) })
}

// TestPartsFP8Cut does the same by units that keep as many bits of a sum as those of a device, within its bounds. The tag
// soak has all cases.
func TestPartsFP8Cut(t *testing.T) {
	cutParts(t, map[string]int{"linear of scaled weights": 9, "linear of long rows": 1})
}

// cutParts runs every n-th case of parts of the suite on such units.
func cutParts(t *testing.T, every map[string]int) {
	if os.Getenv("VAPP_GPU") != "" {
		t.Skip("not run: TestPartsFP8 tests the units of the device")
	}
	s := suite
	s.Settings.Activations, s.CutSums = backend.FP8Activations, true
	eachOf(t, slices.Sorted(maps.Keys(every)), func(t *testing.T, name string) {
		if err := driver.Emulate(fmt.Sprintf("e4m3=%d", ref.SumBitsE4M3)); err != nil {
			t.Fatal(err)
		}
		defer driver.Emulate("reset")
		s.Part(t, name, every[name])
	})
}

// TestPartsLibrary tests dense products by an emulated cuBLASLt, and by the kernels that read
// its layout; every second format is bf16. Inputs of fp8 weights are rounded to fp8.
func TestPartsLibrary(t *testing.T) {
	version := withLibrary(t)
	s := suite
	s.Settings.Linear = backend.CUBLASLt
	eachOf(t, []string{"linear", "linear of scaled weights"}, func(t *testing.T, name string) {
		before, every := driver.Counted("vapp_emulated_host"), 2
		if s := &s.Settings; name != "linear" {
			if s.Activations, every = backend.FP8Activations, 1; version < driver.BLASNeedScales {
				t.Skip(&driver.BLASTooOld{Have: version, Need: driver.BLASNeedScales})
			}
		}
		s.Part(t, name, every)
		if before >= 0 && driver.Counted("vapp_emulated_host") == before {
			t.Error("the library has multiplied nothing")
		}
	})
}

// withLibrary selects the emulated cuBLASLt, or the machine's on a GPU, and returns its
// version. It skips the test if the machine has none, and fails it if that which is there cannot be used.
func withLibrary(t *testing.T) (version int) {
	t.Helper()
	if os.Getenv("VAPP_GPU") == "" {
		t.Setenv("VAPP_LIBCUBLASLT", cudatest.BLAS(t))
		t.Setenv("XDG_CACHE_HOME", t.TempDir())
		return driver.BLASNeedScales
	}
	c, err := driver.Open(0)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	err = c.Do(func() error {
		b, err := c.BLAS()
		if err != nil {
			return err
		}
		version = b.Version()
		return b.Close()
	})
	if missing := (*driver.NoBLAS)(nil); errors.As(err, &missing) && missing.Absent {
		t.Skip(err)
	} else if err != nil {
		t.Fatal(err)
	}
	return version
}

// hold keeps the device's context open while a test runs, because creating one takes longer
// than most tests.
func hold(t testing.TB) {
	t.Helper()
	c, err := driver.Open(0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
}
