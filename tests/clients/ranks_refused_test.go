//go:build clients

package clients

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// mpirun returns the arguments that start vapp in a number of processes.
func mpirun(ranks int, more ...string) []string {
	args := []string{"-q", "--oversubscribe", "--bind-to", "none"}
	if os.Geteuid() == 0 {
		args = append(args, "--allow-run-as-root")
	}
	return append(append(args, "-n", strconv.Itoa(ranks)), more...)
}

// freeAddress returns an address that nothing listens on.
func freeAddress(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

// TestRanksRefused starts ranks that cannot run one model together: each says why in one line, with rank or host and a remedy, within
// the time that the profile gives, and no process is left.
func TestRanksRefused(t *testing.T) {
	const wait = 3 * time.Second
	fields := strings.Replace(twoStages, "20s", wait.String(), 1)
	host, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	host = regexp.QuoteMeta(host)
	other := func(t *testing.T, r *ranked) string {
		b, err := os.ReadFile(r.profile())
		if err == nil {
			err = os.WriteFile(filepath.Join(r.dir, "b.cue"), []byte(strings.Replace(string(b), `"8K"`, `"4K"`, 1)), 0o644)
		}
		if err != nil {
			t.Fatal(err)
		}
		return filepath.Join(r.dir, "b.cue")
	}
	for _, c := range []struct {
		name string
		args func(t *testing.T, r *ranked) []string // of mpirun
		says string
	}{
		{"three ranks for two", func(t *testing.T, r *ranked) []string { return mpirun(3, vapp(t), "up", r.profile()) },
			`Open MPI: this is rank \d of 3 and the profile has 2 ranks .*start that many`},
		{"another profile", func(t *testing.T, r *ranked) []string {
			return mpirun(1, vapp(t), "up", r.profile(), ":", "-n", "1", vapp(t), "up", other(t, r))
		}, `rank 1 \(` + host + `, process \d+\): the profile is .* there and .* on rank 0 \(` + host + `\): give all ranks the same profile`},
		{"another key", func(t *testing.T, r *ranked) []string {
			at := freeAddress(t)
			return mpirun(1, "env", "VAPP_RANKS_KEY=a", vapp(t), "up", r.profile(), "--leader", at, ":", "-n", "1", "env", "VAPP_RANKS_KEY=b", vapp(t), "up", r.profile(), "--leader", at)
		}, `rank 1 \(` + host + `, process \d+\) at rank 0 \(127.*: its key is another; parallel\.key or VAPP_RANKS_KEY must be the same`},
		{"no key", func(t *testing.T, r *ranked) []string {
			return mpirun(2, vapp(t), "up", r.profile(), "--leader", freeAddress(t))
		}, `rank [01] \(` + host + `, process \d+\): the control channel has no key; set parallel\.key or VAPP_RANKS_KEY`},
		{"no library", func(t *testing.T, r *ranked) []string {
			return mpirun(2, "env", "VAPP_LIBMPI=/nowhere/libmpi.so", vapp(t), "up", r.profile())
		}, `rank [01] of 2 on ` + host + `: mpi: /nowhere/libmpi\.so: the loader cannot open it: .*install Open MPI`},
		{"another library", func(t *testing.T, r *ranked) []string {
			return mpirun(2, "env", "VAPP_LIBMPI=libm.so.6", vapp(t), "up", r.profile())
		}, `rank [01] of 2 on ` + host + `: mpi: libm\.so\.6: it is not a library of MPI.*install Open MPI`},
		{"a port in use", func(t *testing.T, r *ranked) []string {
			l, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { l.Close() })
			r.edit(t, strconv.Quote(wait.String()), strconv.Quote("20s")) // rank 1 must not give up before rank 0 has tried to listen
			return mpirun(2, "env", "VAPP_RANKS_KEY=a", vapp(t), "up", r.profile(), "--leader", l.Addr().String())
		}, `rank 0 \(` + host + `, process \d+\): it cannot listen on 127.*address already in use; is another rank 0 running here\? --leader names another port`},
		{"a rank that does not come", func(t *testing.T, r *ranked) []string {
			return mpirun(1, vapp(t), "up", r.profile(), ":", "-n", "1", "sleep", "60")
		}, `rank 0 on ` + host + `: MPI_Init_thread waited 3s for the other 1 processes of the launcher`},
	} {
		if !allRefused && !slices.Contains([]string{"another profile", "another key", "no library"}, c.name) {
			continue
		}
		t.Run(c.name, func(t *testing.T) {
			r := newRanked(t, fields)
			at := time.Now()
			r.start(t, "mpirun", c.args(t, r)...)
			took := r.gone(t, at)
			said := regexp.MustCompile(`(?m)^vapp: .*$|^.*level=ERROR.*$`).FindAllString(r.log(), -1)
			t.Logf("exit code %s after %v:\n%s", r.code(), took.Round(100*time.Millisecond), strings.Join(said, "\n"))
			if !regexp.MustCompile(c.says).MatchString(strings.Join(said, "\n")) {
				t.Errorf("no line says %s:\n%s", c.says, r.log())
			}
			if r.code() == "0" || took > wait+goneIn {
				t.Errorf("exit code %s after %v", r.code(), took)
			}
			r.clean(t)
		})
	}
}

// TestRanksLate has rank 1 come when rank 0 has waited as long as the profile says, and one that comes within that time.
func TestRanksLate(t *testing.T) {
	r := newRanked(t, strings.Replace(twoStages, "20s", "30s", 1))
	// Rank 1 starts when the file is there.
	gate := filepath.Join(r.dir, "gate")
	script := fmt.Sprintf("until [ -e %s ]; do sleep 0.05; done; exec %s up %s", gate, vapp(t), r.profile())
	r.start(t, "mpirun", mpirun(1, vapp(t), "up", r.profile(), ":", "-n", "1", "sh", "-c", script)...)
	r.awaitURL(t)
	if s := status(r.url, "/readyz"); s != "loading" {
		t.Errorf("rank 0 without rank 1 is %s", s)
	}
	if err := os.WriteFile(gate, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	r.awaitReady(t)
}
