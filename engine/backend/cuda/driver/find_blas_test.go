//go:build linux && cgo && cuda

package driver

import (
	"errors"
	"testing"

	"vapp.dev/kernels/cuda/cudatest"
)

// TestFindBLAS finds the emulated library, and says why a missing one is not found.
func TestFindBLAS(t *testing.T) {
	t.Setenv("VAPP_LIBCUBLASLT", cudatest.BLAS(t))
	if v, err := FindBLAS(); err != nil || v < BLASNeed {
		t.Errorf("version %d, %v", v, err)
	}
	t.Setenv("VAPP_LIBCUBLASLT", t.TempDir()+"/none.so")
	var missing *NoBLAS
	if _, err := FindBLAS(); !errors.As(err, &missing) {
		t.Errorf("a missing library: %v", err)
	}
}
