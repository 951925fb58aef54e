//go:build linux && cgo && cuda

package driver

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"vapp.dev/kernels/cuda/cudatest"
)

// TestFindBLAS finds the emulated library and its version, and says why another is not used. The first
// one of several that can be used is opened, and a broken one is named only where there is no other.
func TestFindBLAS(t *testing.T) {
	whole := cudatest.BLAS(t)
	t.Setenv("VAPP_LIBCUBLASLT", whole)
	if v, path, err := FindBLAS(); err != nil || v != 130000 || path != whole {
		t.Errorf("version %d of %s, %v", v, path, err)
	}
	torn := filepath.Join(t.TempDir(), "libcublasLt.so.13")
	if err := os.WriteFile(torn, []byte("torn"), 0o666); err != nil {
		t.Fatal(err)
	}
	half := filepath.Join(t.TempDir(), "libcublasLt.so.12")
	if b, err := os.ReadFile(whole); err != nil {
		t.Fatal(err)
	} else if err := os.WriteFile(half, b[:len(b)/2], 0o666); err != nil {
		t.Fatal(err)
	}
	gone := filepath.Join(t.TempDir(), "none.so")
	for _, c := range []struct {
		files      []string
		settings   string
		used, want string
		absent     bool
	}{
		{files: []string{torn, half, "libm.so.6", whole}, used: whole},
		{files: []string{half}, want: "cuBLASLt cannot be used (" + half + " is not whole: it has "},
		{files: []string{"libcublasLt.so.0", torn, "libm.so.6"}, want: "cuBLASLt cannot be used (" + torn + ": "},
		{files: []string{"libm.so.6", torn}, want: "cuBLASLt cannot be used (libm.so.6 has no cublasLtGetVersion): install"},
		{files: []string{gone}, want: "cuBLASLt cannot be used (" + gone + ": cannot open shared object file"},
		{files: []string{"libcublasLt.so.0"}, want: "cuBLASLt cannot be used (the loader does not find libcublasLt.so.0)"},
		{files: []string{"libcublasLt.so.0", "libcublasLt.so.1"}, want: "no cuBLASLt (" + notInstalled + "): ", absent: true},
		{files: nil, want: "no cuBLASLt (VAPP_LIBCUBLASLT is none): ", absent: true},
		{files: []string{whole, gone}, settings: "version=140000", want: "cuBLASLt is 14.0.0 and 13 is the newest major version"},
		{files: []string{whole, gone}, settings: "version=110400", want: "cuBLASLt is 11.4.0 and 12.0.0 is needed"},
	} {
		t.Setenv("VAPP_EMULATED_CUBLASLT", c.settings)
		_, path, err := loadBLAS(c.files)
		if c.used != "" && (err != nil || path != c.used) {
			t.Errorf("%q: %q, %v", c.files, path, err)
		}
		var missing *NoBLAS
		if c.want != "" && (err == nil || !strings.HasPrefix(err.Error(), c.want) || (errors.As(err, &missing) && missing.Absent) != c.absent) {
			t.Errorf("%q: %v, want %q", c.files, err, c.want)
		}
	}
}
