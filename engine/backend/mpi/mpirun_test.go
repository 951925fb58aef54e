//go:build cgo && linux

package mpi

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"log"
	"net"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"vapp.dev/engine/enginetest"
)

// Variables of a test binary that is a rank: what it does, and the socket to which it reports.
const scenario, report = "VAPP_MPI_SCENARIO", "VAPP_MPI_REPORT"

func TestMain(m *testing.M) {
	switch name := os.Getenv(scenario); name {
	case "":
		os.Exit(m.Run())
	case "start":
		start()
	default:
		rank(name)
	}
}

// rank runs a scenario and reports its outcome in one line. mpirun ends the other ranks when one leaves after an
// abort: each waits until the test has all outcomes.
func rank(name string) {
	to, err := net.Dial("unix", os.Getenv(report))
	if err != nil {
		log.Fatal(err)
	}
	outcome := "ok"
	var o Options
	if strings.HasSuffix(name, "bf16") {
		o.Wire = BF16
	}
	w, err := Open(o)
	if err != nil {
		log.Fatal(err)
	}
	if err := scenarios[name](w); err != nil {
		outcome = err.Error()
	}
	fmt.Fprintf(to, "%d %s\n", w.Rank(), outcome)
	io.Copy(io.Discard, to)
	if err := w.Close(); err != nil {
		log.Fatal(err)
	}
}

// command returns the command of a scenario on ranks processes; for one process without a launcher.
func command(t testing.TB, name string, ranks int, flags ...string) *exec.Cmd {
	t.Helper()
	mpirun := enginetest.OpenMPI(t)
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute) // a rank that hangs is an error, not the end of all tests
	t.Cleanup(cancel)
	cmd := exec.CommandContext(ctx, self)
	if ranks > 1 {
		args := append([]string{"--allow-run-as-root", "--oversubscribe", "-n", strconv.Itoa(ranks)}, flags...)
		cmd = exec.CommandContext(ctx, mpirun, append(args, self)...)
	}
	cmd.Env = append(os.Environ(), scenario+"="+name)
	cmd.WaitDelay = 10 * time.Second
	return cmd
}

// outcomes runs a scenario and returns each rank's line. Ranks that succeed end MPI, and the command does.
func outcomes(t testing.TB, name string, ranks int, flags ...string) []string {
	t.Helper()
	cmd := command(t, name, ranks, flags...)
	socket := t.TempDir() + "/s"
	listener, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	var output bytes.Buffer
	cmd.Stdout, cmd.Stderr = &output, &output
	cmd.Env = append(cmd.Env, report+"="+socket)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() {
		ended <- cmd.Wait()
		listener.Close() // where ranks that have not reported are waited for
	}()
	found := make([]string, ranks)
	var peers []net.Conn
	for range ranks {
		c, err := listener.Accept()
		if err != nil {
			t.Fatalf("%s: the command has ended: %v\n%s", name, <-ended, output.String())
		}
		peers = append(peers, c)
	}
	for _, c := range peers {
		line, err := bufio.NewReader(c).ReadString('\n')
		first, text, _ := strings.Cut(strings.TrimSpace(line), " ")
		r, bad := strconv.Atoi(first)
		if err != nil || bad != nil || r < 0 || r >= ranks {
			t.Fatalf("%s: a rank reported %q, %v; the command: %v\n%s", name, line, err, <-ended, output.String())
		}
		found[r] = text
	}
	for _, c := range peers {
		c.Close()
	}
	if err := <-ended; err != nil && !slices.ContainsFunc(found, func(s string) bool { return s != "ok" }) {
		t.Errorf("%s: all ranks have succeeded, and the command has not: %v\n%s", name, err, output.String())
	}
	return found
}

// wantOK runs a scenario that succeeds on all ranks.
func wantOK(t *testing.T, name string, ranks int, flags ...string) {
	t.Helper()
	for r, line := range outcomes(t, name, ranks, flags...) {
		if line != "ok" {
			t.Errorf("%s: rank %d of %d: %s", name, r, ranks, line)
		}
	}
}
