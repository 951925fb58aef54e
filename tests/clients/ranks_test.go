//go:build clients

package clients

import (
	"bytes"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// ranked is a server of two ranks: what `vapp up` or mpirun has started, down to the last process. Its processes are known by a variable
// in their environment, so that those without a parent are found too.
type ranked struct {
	cmd     *exec.Cmd
	url     string
	dir     string // of the profile and the log
	tmp     string // TMPDIR of all processes
	mark    string // the variable, NAME=VALUE
	ended   chan struct{}
	endedAt time.Time
	sockets []string // that were seen, as /proc/PID/fd names them
	files   []string // in /dev/shm, that were seen to be mapped
	known   map[int]member
}

// member is a process of a server.
type member struct {
	pid   int
	name  string // "supervisor", "mpirun", "rank 0", …
	start string // time of its start, as a later process can have the same number
}

// twoStages are the fields of a profile of two pipeline stages on this host.
const twoStages = `maxModelLen: "8K", memory: kvCache: "512MiB"
	parallel: {pipeline: 2, wait: "20s"}
	cpu: ranks: 2`

// startRanks starts two ranks of the default model by `vapp up` and waits until they serve.
func startRanks(t *testing.T, more string) *ranked {
	t.Helper()
	r := newRanked(t, more)
	r.start(t, vapp(t), "up", r.profile())
	r.awaitReady(t)
	return r
}

// newRanked writes the profile of a server that has not started.
func newRanked(t *testing.T, more string) *ranked {
	t.Helper()
	if _, err := exec.LookPath("mpirun"); err != nil {
		t.Skip("not run: ranks on CPUs need Open MPI's mpirun (Debian: openmpi-bin)")
	}
	dir := t.TempDir()
	tmp, err := os.MkdirTemp("", "vr") // short, for the names of sockets
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(tmp) })
	model, err := filepath.Abs("../../models/SmolLM2-135M-Instruct.Q4_1.gguf")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := writeProfile(dir, model, more); err != nil {
		t.Fatal(err)
	}
	return &ranked{dir: dir, tmp: tmp, mark: "VAPP_TEST_RUN=" + tmp, ended: make(chan struct{}), known: map[int]member{}}
}

func (r *ranked) profile() string { return filepath.Join(r.dir, "p.cue") }

// vapp returns the path of the program.
func vapp(t *testing.T) string {
	t.Helper()
	bin, err := filepath.Abs("../../bin/vapp")
	if err != nil {
		t.Fatal(err)
	}
	return bin
}

// start runs a command with the log in a file: the end of the command leaves the log of its orphans open.
func (r *ranked) start(t *testing.T, name string, args ...string) {
	t.Helper()
	log, err := os.Create(filepath.Join(r.dir, "log"))
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	r.cmd = exec.Command(name, args...)
	r.cmd.Stdout, r.cmd.Stderr = log, log
	r.cmd.Env = append(os.Environ(), r.mark, "TMPDIR="+r.tmp)
	r.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := r.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		_ = r.cmd.Wait()
		r.endedAt = time.Now()
		close(r.ended)
	}()
	t.Cleanup(func() {
		for _, p := range r.members() {
			_ = syscall.Kill(p.pid, syscall.SIGKILL)
		}
		<-r.ended
		if t.Failed() {
			t.Logf("the log:\n%s", r.log())
		}
	})
}

func (r *ranked) log() string {
	b, _ := os.ReadFile(filepath.Join(r.dir, "log"))
	return string(b)
}

// await polls until yes, the end of the command, or a minute has passed.
func (r *ranked) await(t *testing.T, what string, yes func() bool) {
	t.Helper()
	for at := time.Now(); !yes(); time.Sleep(2 * time.Millisecond) {
		select {
		case <-r.ended:
			t.Fatalf("the command ended (%v) before: %s", r.cmd.ProcessState, what)
		default:
		}
		if time.Since(at) > time.Minute {
			t.Fatalf("never: %s", what)
		}
	}
}

// awaitLog waits for a text in the log.
func (r *ranked) awaitLog(t *testing.T, text string) {
	t.Helper()
	r.await(t, text, func() bool { return strings.Contains(r.log(), text) })
}

// awaitURL waits until rank 0 listens.
func (r *ranked) awaitURL(t *testing.T) {
	t.Helper()
	r.await(t, "rank 0 listens", func() bool {
		m := listening.FindStringSubmatch(r.log())
		if m != nil {
			r.url = "http://127.0.0.1:" + m[1]
		}
		return m != nil
	})
}

func (r *ranked) awaitReady(t *testing.T) {
	t.Helper()
	r.awaitURL(t)
	r.awaitPhase(t, "ready")
}

// awaitPhase waits for a phase of /readyz.
func (r *ranked) awaitPhase(t *testing.T, phase string) {
	t.Helper()
	r.await(t, "phase "+phase, func() bool { return status(r.url, "/readyz") == phase })
}

var phases = regexp.MustCompile(`(loading|draining|failed|ready)\W*"[,}]`)

// status returns what a path for probes answers: "ready", "503 failed", "no answer" or "refused".
func status(url, path string) string {
	c := http.Client{Timeout: time.Second, Transport: &http.Transport{DisableKeepAlives: true}}
	reply, err := c.Get(url + path)
	switch {
	case errors.Is(err, syscall.ECONNREFUSED):
		return "refused"
	case err != nil:
		return "no answer"
	}
	defer reply.Body.Close()
	if reply.StatusCode == http.StatusOK {
		return "ready"
	}
	var b bytes.Buffer
	_, _ = b.ReadFrom(reply.Body)
	phase := "without a phase"
	if m := phases.FindStringSubmatch(b.String()); m != nil {
		phase = m[1]
	}
	if path == "/readyz" {
		return phase
	}
	return fmt.Sprint(reply.StatusCode, " ", phase)
}

// pid returns the process of a name.
func (r *ranked) pid(t *testing.T, name string) int {
	t.Helper()
	pid := 0
	r.await(t, "there is "+name, func() bool {
		for _, m := range r.members() {
			if m.name == name {
				pid = m.pid
			}
		}
		return pid > 0
	})
	return pid
}

// gone waits until no process is left and returns the time since at.
func (r *ranked) gone(t *testing.T, at time.Time) time.Duration {
	t.Helper()
	for {
		left := r.members()
		if took := time.Since(at); len(left) == 0 {
			return took
		} else if took > 30*time.Second {
			t.Errorf("after %v there still are %v", took, left)
			return took
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// signal sends a signal to the process of a name and returns when.
func (r *ranked) signal(t *testing.T, name string, s syscall.Signal) time.Time {
	t.Helper()
	pid := r.pid(t, name)
	at := time.Now()
	if err := syscall.Kill(pid, s); err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	return at
}

// code waits for the end of the command and returns its exit code, or "killed".
func (r *ranked) code() string {
	<-r.ended
	if w, ok := r.cmd.ProcessState.Sys().(syscall.WaitStatus); ok && w.Signaled() {
		return w.Signal().String()
	}
	return strconv.Itoa(r.cmd.ProcessState.ExitCode())
}
