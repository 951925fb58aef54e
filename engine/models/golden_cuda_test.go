//go:build linux && cgo && cuda

package models_test

import (
	"errors"
	"io/fs"
	"maps"
	"os"
	"runtime"
	"slices"
	"strings"
	"testing"

	"vapp.dev/engine/backend"
	"vapp.dev/engine/backend/cuda"
	"vapp.dev/engine/backend/cuda/driver"
	"vapp.dev/engine/enginetest"
	"vapp.dev/kernels/cuda/cudatest"
)

// TestGoldenCUDAAdapters is TestLoRARef on the emulated driver, or on a GPU.
func TestGoldenCUDAAdapters(t *testing.T) {
	if os.Getenv("VAPP_GPU") == "" && os.Getenv("VAPP_GOLDEN") != "all" {
		t.Skip("not run: it takes a minute on the emulated driver; VAPP_GOLDEN=all runs it")
	}
	cudatest.Use(t)
	loraGolden(t, cuda.Opener{}, backend.Settings{}, enginetest.BoundCUDA)
}

// TestGoldenCUDAMedia is TestMediaRef on the emulated driver, or on a GPU.
func TestGoldenCUDAMedia(t *testing.T) {
	if os.Getenv("VAPP_GPU") == "" && os.Getenv("VAPP_GOLDEN") != "all" {
		t.Skip("not run: it takes a minute on the emulated driver; VAPP_GOLDEN=all runs it")
	}
	cudatest.Use(t)
	runMedia(t, cuda.Opener{}, backend.Settings{}, enginetest.BoundCUDA, false)
}

// TestGoldenCUDA runs the golden files on this machine's GPU if VAPP_GPU is set, else the small
// checkpoints on the emulated driver. The bits of a row may depend on the other rows of the step.
func TestGoldenCUDA(t *testing.T) {
	gpu := os.Getenv("VAPP_GPU") != ""
	if !gpu && os.Getenv("VAPP_GOLDEN") != "all" {
		t.Skip("not run: it takes minutes on the emulated driver; VAPP_GOLDEN=all runs it")
	}
	most := 1
	if gpu {
		all, err := driver.Devices()
		if err != nil {
			t.Fatal(err)
		}
		if !all[0].Exclusive {
			most = 4
		}
	}
	leftOut := leftOut(t)
	names := slices.DeleteFunc(slices.Sorted(maps.Keys(goldens)), func(name string) bool {
		return !gpu && !enginetest.Tiny(name) || !enginetest.RunsOn(name, "cuda") || slices.Contains(leftOut, name)
	})
	cudatest.Apart(t, most, names, func(t *testing.T, name string) {
		cudatest.Use(t)
		// The devices of the runs share a context, because creating one takes longer than most of
		// the runs.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		c, err := driver.Open(0)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		switch {
		case strings.HasSuffix(name, x8):
			fp8Golden(t, name, cuda.Opener{}, boundFP8, false)
		case enginetest.Tiny(name):
			tinyGolden(t, name, cuda.Opener{}, backend.Settings{}, enginetest.BoundCUDA, false)
		default:
			smolGolden(t, name, cuda.Opener{}, backend.Settings{}, enginetest.BoundCUDA, true)
		}
	})
}

// leftOut returns the golden files that a bundle of scripts/gpu-bundle.sh leaves out, and logs them.
func leftOut(t *testing.T) []string {
	b, err := os.ReadFile("testdata/golden/left-out")
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	} else if err != nil {
		t.Fatal(err)
	}
	names := strings.Fields(string(b))
	if len(names) > 0 {
		t.Logf("left out of the bundle: %s", strings.Join(names, ", "))
	}
	return names
}
