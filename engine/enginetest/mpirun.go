package enginetest

import (
	"context"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"
)

// OpenMPI returns the path of Open MPI's mpirun. It skips the test where there is none.
func OpenMPI(t testing.TB) string {
	t.Helper()
	mpirun, err := exec.LookPath("mpirun")
	if err != nil {
		t.Skip("not run: mpirun is not on the path (Debian, Ubuntu: apt-get install openmpi-bin)")
	}
	if out, err := exec.Command(mpirun, "--version").Output(); err != nil || !strings.Contains(string(out), "Open MPI") {
		t.Skipf("not run: %s is not Open MPI's", mpirun)
	}
	return mpirun
}

// MPIRun returns the command that runs this test binary with arguments as ranks processes under mpirun, killed after a
// time. Each rank has the variables of env. MPIRun skips the test where Open MPI is absent.
func MPIRun(t testing.TB, ranks int, limit time.Duration, env []string, args ...string) *exec.Cmd {
	t.Helper()
	mpirun := OpenMPI(t)
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	t.Cleanup(cancel)
	all := []string{"--oversubscribe", "--bind-to", "none", "-n", strconv.Itoa(ranks)}
	if os.Geteuid() == 0 {
		all = append(all, "--allow-run-as-root")
	}
	c := exec.CommandContext(ctx, mpirun, append(append(all, self), args...)...)
	c.Env = append(append(os.Environ(), "TMPDIR="+t.TempDir()), env...)
	c.WaitDelay = 10 * time.Second
	return c
}
