//go:build linux && cgo && cuda

package cuda

import (
	"errors"
	"maps"
	"os"
	"runtime"
	"slices"
	"testing"

	"vapp.dev/engine/backend"
	"vapp.dev/engine/backend/backendtest"
	"vapp.dev/engine/backend/cuda/driver"
	"vapp.dev/kernels/cuda/cudatest"
)

// emulated has the process use the emulated driver, where VAPP_GPU does not say that this
// machine has one.
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

// A row is summed by tiles among many and by warps among few, and by chunks where many follow
// each other (design, "Batching never changes a token").
var suite = backendtest.Suite{Opener: Opener{}, MatrixTolerance: true}

// TestParts runs a part of the backends' suite after the other: all cases of the quick ones, every
// n-th of others. The whole of it is TestSuite, of `make test-cuda`.
func TestParts(t *testing.T) {
	every := map[string]int{
		"linear": 4, "linear of scaled weights": 9, "experts": 6, "rows": 1, "conv": 3, "delta": 4, "attention": 40,
		"attention of more kinds": 6, "attention with rebuilt keys": 7, "equal": 16, "tokens": 3, "sample": 2, "draft positions": 6,
	}
	eachOf(t, backendtest.Parts(), func(t *testing.T, name string) { suite.Part(t, name, max(1, every[name])) })
}

// eachOf runs parts of the suite; on a GPU each has a process, four at once where more than one may
// have the device.
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

// TestPartsFP8: products of weights in fp8 with inputs that are rounded to it.
func TestPartsFP8(t *testing.T) {
	s := suite
	s.Settings.Activations = backend.FP8Activations
	every := map[string]int{"linear of scaled weights": 2, "experts": 1}
	eachOf(t, slices.Sorted(maps.Keys(every)), func(t *testing.T, name string) { s.Part(t, name, every[name]) })
}

// TestPartsLibrary: dense products by an emulated cuBLASLt, and by the kernels that read rows as it
// takes them; bf16 is among every second format. Weights in fp8 have inputs that are rounded to it.
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

// withLibrary has the emulated cuBLASLt, or the machine's where it has a device, and says its version; a test is
// skipped where that has none.
func withLibrary(t *testing.T) (version int) {
	t.Helper()
	if os.Getenv("VAPP_GPU") == "" {
		t.Setenv("VAPP_LIBCUBLASLT", cudatest.BLAS(t))
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
	if missing := (*driver.NoBLAS)(nil); errors.As(err, &missing) {
		t.Skip(err)
	} else if err != nil {
		t.Fatal(err)
	}
	return version
}

// hold keeps the device's context while a test runs, whose devices share it: it takes longer to
// make than most of them take.
func hold(t testing.TB) {
	t.Helper()
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	c, err := driver.Open(0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
}
