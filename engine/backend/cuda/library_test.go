//go:build linux && cgo && cuda

package cuda_test

import (
	"context"
	"errors"
	"path/filepath"
	"strings"
	"testing"

	"vapp.dev/engine"
	"vapp.dev/engine/backend"
	"vapp.dev/engine/backend/cuda/driver"
	"vapp.dev/engine/sample"
	"vapp.dev/kernels/cuda/cudatest"
)

// byLibrary selects cuBLASLt, in steps of up to 64 rows.
func byLibrary(o *engine.Options) {
	o.Backend.Linear, o.MaxNumBatchedTokens = backend.CUBLASLt, 64
}

// TestNoLibrary: a cuBLASLt that is missing, incomplete, too old or without an algorithm
// makes a start fail before weights are read. The error is one line of its own type with a
// remedy, and all device memory is freed.
func TestNoLibrary(t *testing.T) {
	open := startingWith(t, byLibrary)
	emulate(t, "reset")
	whole := cudatest.BLAS(t)
	for _, c := range []struct {
		library, settings string
		as                any
		want              string
	}{
		{filepath.Join(t.TempDir(), "libcublasLt.so.13"), "", new(*driver.NoBLAS), "no cuBLASLt ("},
		{cudatest.Driver(t), "", new(*driver.NoBLAS), " has no cublasLtGetVersion): install"},
		{whole, "version=110405", new(*driver.BLASTooOld), "cuBLASLt is 11.4.5 and 12.0.0 is needed: install"},
		{whole, "create=1", new(*driver.BLASError), "device 0, emulated GPU: cublasLtCreate: CUBLAS_STATUS_NOT_INITIALIZED: "},
		{whole, "algorithms=none", new(*driver.NoAlgorithm), "cuBLASLt has no algorithm for 32 rows times "},
	} {
		t.Setenv("VAPP_LIBCUBLASLT", c.library)
		t.Setenv("VAPP_EMULATED_CUBLASLT", c.settings)
		read := driver.Counted("cuMemcpyHtoDAsync") // the call that copies weights
		e, err := open(context.Background(), nil)
		if err == nil {
			e.Close()
			t.Errorf("%s: it started", c.want)
			continue
		}
		if !errors.As(err, c.as) || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), `set cuda.linear to "own"`) ||
			strings.Count(err.Error(), "backend cuda: ") != 1 || strings.Contains(err.Error(), "\n") {
			t.Errorf("%T %v, want %q", err, err, c.want)
		}
		if driver.Counted("cuMemcpyHtoDAsync") != read {
			t.Errorf("%s: weights were read", c.want)
		}
		if n := driver.Counted("taken"); n != 0 {
			t.Errorf("%s: %d bytes of the device are still taken", c.want, n)
		}
	}
	// Without the setting, no library is needed.
	t.Setenv("VAPP_LIBCUBLASLT", filepath.Join(t.TempDir(), "none"))
	e, err := startingUntil(t)(context.Background(), nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := e.Close(); err != nil {
		t.Error(err)
	}
}

// TestFailingLibrary: a product that the library rejects only in a step ends its requests
// with an error that has the call and the library's status.
func TestFailingLibrary(t *testing.T) {
	open := startingWith(t, byLibrary)
	emulate(t, "reset")
	t.Setenv("VAPP_LIBCUBLASLT", cudatest.BLAS(t))
	t.Setenv("VAPP_EMULATED_CUBLASLT", "matmul=13")
	e, err := open(context.Background(), nil)
	if err != nil {
		t.Fatal(err)
	}
	p := sample.Default()
	p.MaxTokens = 4
	s, err := e.Submit(context.Background(), engine.Request{Prompt: make([]int32, 30), Params: p})
	if err != nil {
		t.Fatal(err)
	}
	if err := endOf(t, s[0]); !errors.Is(err, engine.ErrDead) || !strings.Contains(err.Error(), "device 0, emulated GPU: cublasLtMatmul: CUBLAS_STATUS_EXECUTION_FAILED") {
		t.Errorf("the request ended with %v", err)
	}
	if err := e.Close(); err != nil {
		t.Error(err)
	}
}

// TestLibraryVersion checks the library's version.
func TestLibraryVersion(t *testing.T) {
	t.Setenv("VAPP_LIBCUDA", cudatest.Driver(t))
	t.Setenv("VAPP_LIBCUBLASLT", cudatest.BLAS(t))
	emulate(t, "reset")
	ctx, err := driver.Open(0)
	if err != nil {
		t.Fatal(err)
	}
	defer ctx.Close()
	err = ctx.Do(func() error {
		b, err := ctx.BLAS()
		if err != nil {
			return err
		}
		if v := b.Version(); v != 130000 {
			t.Errorf("version %d", v)
		}
		return b.Close()
	})
	if err != nil {
		t.Error(err)
	}
}
