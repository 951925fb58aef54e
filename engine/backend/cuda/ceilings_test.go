//go:build linux && cgo && cuda

package cuda

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"vapp.dev/engine/backend/cuda/driver"
	"vapp.dev/kernels/cuda/cudatest"
)

// TestCeilings measures copies and a product of the library. A library that is missing, is no library, or is
// too old gives one line that says why there is no rate of it; copies are measured all the same. It leaves no memory taken.
func TestCeilings(t *testing.T) {
	if os.Getenv("VAPP_GPU") != "" {
		t.Skip("vapp bench engine measures the device")
	}
	emulated(t)
	f, err := Opener{}.Probe()
	check(t, err)
	torn := filepath.Join(t.TempDir(), "libcublasLt.so.13")
	check(t, os.WriteFile(torn, []byte("torn"), 0o644))
	for _, c := range []struct{ library, settings, why string }{
		{cudatest.BLAS(t), "", ""},
		{cudatest.BLAS(t), "version=110405", "cuBLASLt is 11.4.5 and 12.0.0 is needed"},
		{cudatest.BLAS(t), "version=140000", "cuBLASLt is 14.0.0 and 13 is the newest major version"},
		{cudatest.BLAS(t), "create=1", "CUBLAS_STATUS_NOT_INITIALIZED"},
		{torn, "", "cuBLASLt cannot be used ("},
		{torn + ".none", "", "cuBLASLt cannot be used ("},
	} {
		t.Setenv("VAPP_LIBCUBLASLT", c.library)
		t.Setenv("VAPP_EMULATED_CUBLASLT", c.settings)
		got, err := Opener{}.Ceilings(f, 3<<20, 64)
		if err != nil || got.Copy <= 0 || (got.Library > 0) != (c.why == "") || !strings.Contains(got.Why, c.why) || strings.Contains(got.Why, "\n") {
			t.Errorf("%s %s: %+v, %v", c.library, c.settings, got, err)
		}
	}
	if n := driver.Counted("bytes"); n != 0 {
		t.Errorf("%d bytes of the device are still taken", n)
	}
}
