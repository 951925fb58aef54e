//go:build cgo && linux

package mpi

import (
	"cmp"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"vapp.dev/engine/backend"
)

// TestVersions: Open MPI 4 and 5 are taken, other libraries are refused by name with a remedy.
func TestVersions(t *testing.T) {
	for text, want := range map[string]string{
		"Open MPI v4.1.4, package: Debian OpenMPI, ident: 4.1.4, repo rev: v4.1.4, May 26, 2022": "Open MPI 4.1.4",
		"Open MPI v5.0.7, package: Debian OpenMPI":                                               "Open MPI 5.0.7",
		"Open MPI v3.1.3, package: Debian OpenMPI":                                               "Open MPI 3.1.3, which is too old",
		"Open MPI v6.0.0":                       "Open MPI 6.0.0, whose binary interface is not known",
		"Open MPI vX":                           `it gives its version as "Open MPI vX"`,
		"MPICH Version:\t4.0.2\nMPICH Release":  "it is MPICH (MPICH Version: 4.0.2), not Open MPI; install Open MPI 4 or 5",
		"Intel(R) MPI Library 2021.9 for Linux": "it is Intel MPI (Intel(R) MPI Library 2021.9 for Linux), not Open MPI",
		"MVAPICH2 Version      :\t2.3.7":        "it is MVAPICH",
		"":                                      `it is "", not Open MPI`,
	} {
		got, err := checkVersion("libmpi.so", text)
		if err != nil {
			got = err.Error()
		}
		if !strings.Contains(got, want) || err != nil && !errors.Is(err, backend.ErrUnsupported) {
			t.Errorf("%q: %s, want %q", text, got, want)
		}
	}
}

// TestLibraries: files that are no library of Open MPI are refused before MPI starts.
func TestLibraries(t *testing.T) {
	text := filepath.Join(t.TempDir(), "libmpi.so.40")
	if err := os.WriteFile(text, []byte("no library\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]string{
		"/absent/libmpi.so.40": "/absent/libmpi.so.40: the loader cannot open it",
		text:                   "the loader cannot open it",
		"libm.so.6":            "libm.so.6: it is not a library of MPI: it has no MPI_Get_library_version; install Open MPI",
		stub(t, `MPICH Version:\t4.0.2\nMPICH Device: ch4`, "return 0;"):             "it is MPICH (MPICH Version: 4.0.2), not Open MPI",
		stub(t, "Open MPI v3.0.0, package: x", "return 0;"):                          "it is Open MPI 3.0.0, which is too old",
		stub(t, "Open MPI v4.1.4, package: x", "return 0;", "-DMPI_Testall=MPI_Was"): "it is Open MPI 4.1.4 without the symbol MPI_Testall",
	} {
		w, err := Open(Options{Library: path})
		var refused *LibraryError
		if w != nil || !errors.As(err, &refused) || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: %v, want %q", path, err, want)
		}
	}
}

// TestAbsent: an error without a named library says where it was looked for.
func TestAbsent(t *testing.T) {
	err := absent(places())
	for _, want := range []string{"libmpi.so.40", "/usr/lib64/openmpi/lib/libmpi.so.40", "apt-get install openmpi-bin"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
}

// TestStart: libraries that hang, fail, lack threads and take a signal from Go. Each is a process: MPI starts once.
func TestStart(t *testing.T) {
	for name, c := range map[string]struct{ start, want string }{
		"hangs":   {"for (;;) pause();", "mpi: rank 1 on HOST: MPI_Init_thread waited 20ms for the other 3 processes of the launcher"},
		"fails":   {"return 16;", "mpi: rank 1 on HOST: MPI_Init_thread: the stub's error (code 16)"},
		"signals": {"signal(SIGSEGV, _exit); *provided = 2; return 0;", "a nil pointer is a panic"},
		"threads": {"*(int *)provided = 1; return 0;", "it was built without threads (level 1); use a build with MPI_THREAD_SERIALIZED"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			self, err := os.Executable()
			if err != nil {
				t.Fatal(err)
			}
			cmd := exec.CommandContext(t.Context(), self)
			cmd.Env = append(os.Environ(), scenario+"=start", "VAPP_MPI_STUB="+stub(t, "Open MPI v4.1.4, package: x", c.start),
				"OMPI_COMM_WORLD_RANK=1", "OMPI_COMM_WORLD_SIZE=4")
			out, err := cmd.CombinedOutput()
			host, _ := os.Hostname()
			if want := strings.ReplaceAll(c.want, "HOST", host); err != nil || !strings.Contains(string(out), want) {
				t.Errorf("%v: %s, want %q", err, out, want)
			}
		})
	}
}

// start opens the stub and prints the error, or whether a nil pointer is still a panic of Go.
func start() {
	w, err := Open(Options{Library: os.Getenv("VAPP_MPI_STUB"), Wait: 20 * time.Millisecond})
	if err == nil {
		err = cmp.Or(nilPointer(w), errors.New("a nil pointer is a panic"))
	}
	os.Stdout.WriteString(err.Error())
}

// stub compiles a library with the symbols of Open MPI, that gives this version and starts so.
func stub(t *testing.T, version, start string, flags ...string) string {
	t.Helper()
	cc := os.Getenv("CC")
	if cc == "" {
		cc = "cc"
	}
	out := filepath.Join(t.TempDir(), "libmpi.so.40")
	cmd := exec.Command(cc, append(flags, "-shared", "-fPIC", "-w", "-o", out, "-x", "c", "-")...)
	cmd.Stdin = strings.NewReader(`
#include <signal.h>
#include <string.h>
#include <unistd.h>
int MPI_Get_library_version(char *s, int *n) { strcpy(s, "` + version + `"); *n = strlen(s); return 0; }
int MPI_Init_thread(int *c, char ***v, int want, int *provided) { ` + start + ` }
int MPI_Error_string(int code, char *s, int *n) { strcpy(s, "the stub's error"); return 0; }
int MPI_Comm_rank(void *c, int *n) { *n = 0; return 0; }
int MPI_Comm_size(void *c, int *n) { *n = 1; return 0; }
#define NONE(name) int name() { return 0; }
NONE(MPI_Finalize) NONE(MPI_Comm_set_errhandler) NONE(MPI_Comm_split) NONE(MPI_Comm_free) NONE(MPI_Isend) NONE(MPI_Irecv)
NONE(MPI_Testall) NONE(MPI_Get_count) NONE(MPI_Allreduce)
int ompi_mpi_comm_world, ompi_mpi_byte, ompi_mpi_float, ompi_mpi_op_sum, ompi_mpi_errors_return;
`)
	if text, err := cmd.CombinedOutput(); err != nil {
		t.Skipf("not run: %s compiles no library: %v\n%s", cc, err, text)
	}
	return out
}
