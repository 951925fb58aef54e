//go:build linux && cgo && cuda

package nccl

import (
	"os"
	"os/exec"
	"strings"
	"testing"

	"vapp.dev/kernels/cuda/cudatest"
)

// TestLibraries starts a process for each library, because a process opens it once.
func TestLibraries(t *testing.T) {
	if os.Getenv("NCCL_TEST_LIBRARY") != "" {
		id, err := UniqueID()
		t.Logf("%d bytes, %T: %v", len(id), err, err)
		return
	}
	path := cudatest.NCCL(t)
	for _, c := range []struct{ library, settings, want string }{
		{path, "", "128 bytes, <nil>"},
		{path, "version=21701", "*nccl.TooOld: NCCL is 2.17.1 and 2.18.0 is needed"},
		{path + ".none", "", "*nccl.NoLibrary: no NCCL (" + path + ".none: cannot open"},
		{"libm.so.6", "", "*nccl.NoLibrary: no NCCL (libm.so.6 has no ncclGetVersion)"},
	} {
		cmd := exec.Command(os.Args[0], "-test.run=^TestLibraries$", "-test.v")
		cmd.Env = append(os.Environ(), "NCCL_TEST_LIBRARY=1", "VAPP_LIBNCCL="+c.library, "VAPP_EMULATED_NCCL="+c.settings)
		out, err := cmd.CombinedOutput()
		if err != nil || !strings.Contains(string(out), c.want) {
			t.Errorf("%s %s: %v, want %q in\n%s", c.library, c.settings, err, c.want, out)
		}
	}
}
