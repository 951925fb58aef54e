//go:build linux && cgo && cuda

package cuda_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"vapp.dev/engine"
	"vapp.dev/engine/backend"
	"vapp.dev/engine/backend/cuda"
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
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	whole := cudatest.BLAS(t)
	for _, c := range []struct {
		library, settings string
		as                any
		want              string
	}{
		{filepath.Join(t.TempDir(), "libcublasLt.so.13"), "", new(*driver.NoBLAS), "cuBLASLt cannot be used ("},
		{cudatest.Driver(t), "", new(*driver.NoBLAS), " has no cublasLtGetVersion): install"},
		{whole, "version=110405", new(*driver.BLASTooOld), "cuBLASLt is 11.4.5 and 12.0.0 is needed: install"},
		{whole, "version=140102", new(*driver.BLASTooNew), "cuBLASLt is 14.1.2 and 13 is the newest major version that this vapp calls: install"},
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
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	first, err := open(context.Background(), nil) // times the algorithms, so that the next start runs none
	if err != nil {
		t.Fatal(err)
	}
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
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

// TestLibraryAlgorithms: the algorithms of a start are in the user's cache folder, and the next start
// times none. A torn file is replaced, with a note. An algorithm that refuses to run is not taken; if
// all do, the start ends with the library's error.
func TestLibraryAlgorithms(t *testing.T) {
	open := startingWith(t, byLibrary)
	cache := t.TempDir()
	t.Setenv("XDG_CACHE_HOME", cache)
	t.Setenv("VAPP_LIBCUBLASLT", cudatest.BLAS(t))
	start := func(settings string) (products uint64, notes []string, err error) {
		t.Helper()
		emulate(t, "reset")
		t.Setenv("VAPP_EMULATED_CUBLASLT", settings)
		before := driver.Counted("vapp_emulated_host")
		e, err := open(context.Background(), nil)
		if err != nil {
			return 0, nil, err
		}
		defer e.Close()
		return uint64(driver.Counted("vapp_emulated_host") - before), e.Notes(), nil
	}
	file := func() (path, text string) {
		t.Helper()
		list, err := filepath.Glob(filepath.Join(cache, "vapp", "cublaslt-*.json"))
		if err != nil || len(list) != 1 {
			t.Fatalf("files %q, %v", list, err)
		}
		b, err := os.ReadFile(list[0])
		if err != nil {
			t.Fatal(err)
		}
		return list[0], string(b)
	}
	first, notes, err := start("")
	if err != nil || len(notes) != 0 {
		t.Fatalf("%q, %v", notes, err)
	}
	path, whole := file()
	second, notes, err := start("")
	if _, now := file(); err != nil || len(notes) != 0 || now != whole || second >= first {
		t.Errorf("%d products, then %d; %q, %v", first, second, notes, err)
	}
	if err := os.WriteFile(path, []byte(whole[:len(whole)/2]), 0o644); err != nil {
		t.Fatal(err)
	}
	third, notes, err := start("fails=2")
	if err != nil || third <= second || len(notes) != 1 || !strings.HasPrefix(notes[0], "cuBLASLt's algorithms are timed again: "+path+": it is damaged") {
		t.Errorf("a torn file: %d products, %q, %v", third, notes, err)
	}
	_, text := file()
	for _, line := range regexp.MustCompile(`": "([0-9a-f]{128})"`).FindAllStringSubmatch(text, -1) {
		if id := line[1][96:98]; id != "02" {
			t.Errorf("algorithm %s is taken, and it refuses to run", id)
		}
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	cuda.SetMostTiming(t, 0)
	untimed, notes, err := start("fails=1")
	if list, _ := filepath.Glob(filepath.Join(cache, "vapp", "*")); err != nil || untimed >= first || len(list) != 0 || len(notes) != 1 || !strings.HasPrefix(notes[0], "cuBLASLt's algorithms: ") {
		t.Errorf("without time: %d products, at first %d; files %q, notes %q, %v", untimed, first, list, notes, err)
	}
	var refused *driver.BLASError
	if _, _, err := start("fails=3"); !errors.As(err, &refused) || refused.Name != "CUBLAS_STATUS_NOT_SUPPORTED" {
		t.Errorf("all refuse: %v", err)
	}
	if n := driver.Counted("taken"); n != 0 {
		t.Errorf("%d bytes of the device are still taken", n)
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
