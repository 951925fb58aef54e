//go:build soak && linux

package vapp_test

import (
	"bufio"
	"fmt"
	"io"
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

// TestRanksExampleMpirun runs two ranks by examples/ranks/mpirun.sh on this host, and checks that SIGTERM cuts off no stream.
func TestRanksExampleMpirun(t *testing.T) {
	if _, err := exec.LookPath("mpirun"); err != nil {
		t.Skip("no mpirun: ", err)
	}
	drained(t, nil, exec.Command("examples/ranks/mpirun.sh", "--allow-run-as-root", "--oversubscribe", "--bind-to", "none", "-n", "2"))
}

// TestRanksAllSignalled sends SIGTERM to every rank at once, as Slurm and Kubernetes do. It is one signal to rank 0, although the
// other rank asks it to drain too.
func TestRanksAllSignalled(t *testing.T) {
	if _, err := exec.LookPath("mpirun"); err != nil {
		t.Skip("no mpirun: ", err)
	}
	drained(t, func(ranks []int) {
		for _, pid := range ranks {
			if err := syscall.Kill(pid, syscall.SIGTERM); err != nil {
				t.Error(err)
			}
		}
	}, exec.Command("mpirun", "--allow-run-as-root", "--oversubscribe", "--bind-to", "none", "-n", "2", "sh", "-c", `echo "rank is process $$"; exec "$0" "$@"`))
}

// TestRanksExampleRay does the same by the Ray driver. VAPP_RAY_PYTHON names a Python that has Ray.
func TestRanksExampleRay(t *testing.T) {
	python := os.Getenv("VAPP_RAY_PYTHON")
	if python == "" {
		t.Skip("VAPP_RAY_PYTHON names no Python with Ray; scripts/examples-ranks.sh makes one")
	}
	if out, err := exec.Command(python, "-c", "import ray").CombinedOutput(); err != nil {
		t.Skipf("%s cannot import ray: %v\n%s", python, err, out)
	}
	drained(t, nil, exec.Command(python, "examples/ranks/ray_ranks.py"))
}

// patience bounds each wait for an event.
const patience = 3 * time.Minute

var (
	readyLine = regexp.MustCompile(`msg=ready models=\S+ url=(\S+)/v1`)
	rankLine  = regexp.MustCompile(`^rank is process (\d+)$`)
)

// drained adds `vapp up` of the example's profile to a launcher's command and runs it. After the first token of a stream it calls
// stop with the processes that the log names, or sends SIGTERM to the launcher if stop is nil: the stream must have all its
// tokens, and the launcher must end with code 0.
func drained(t *testing.T, stop func(ranks []int), c *exec.Cmd) {
	root, err := os.Getwd()
	if err == nil {
		_, err = os.Stat("bin/vapp")
	}
	if err != nil {
		t.Skip("make build first: ", err)
	}
	c.Args = append(c.Args, filepath.Join(root, "bin/vapp"), "up", filepath.Join(root, "examples/ranks/profile.cue"),
		"--set", "serve.host=127.0.0.1", "--set", "serve.port=0", "--set", "cpu.ranks=2")
	r, w := io.Pipe()
	c.Stdout, c.Stderr = w, w
	c.Env = append(os.Environ(), "RAY_ADDRESS=local", "RAY_USAGE_STATS_ENABLED=0") // a cluster of its own
	c.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}                            // the launcher's processes end with the test
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { err := c.Wait(); w.Close(); ended <- err }()
	defer syscall.Kill(-c.Process.Pid, syscall.SIGKILL)
	ready := make(chan string, 1)
	var ranks []int // written before ready
	go func() {
		for in := bufio.NewScanner(r); in.Scan(); {
			t.Log(in.Text())
			if m := rankLine.FindStringSubmatch(in.Text()); m != nil {
				pid, _ := strconv.Atoi(m[1])
				ranks = append(ranks, pid)
			}
			if m := readyLine.FindStringSubmatch(in.Text()); m != nil {
				ready <- m[1]
			}
		}
	}()
	var url string
	select {
	case url = <-ready:
	case err := <-ended:
		t.Fatalf("the ranks ended before they were ready: %v", err)
	case <-time.After(patience):
		t.Fatal("the ranks are not ready")
	}
	const tokens = 200
	body := fmt.Sprintf(`{"model":"smollm2","prompt":"Once","max_tokens":%d,"ignore_eos":true,"stream":true}`, tokens)
	reply, err := http.Post(url+"/v1/completions", "application/json", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	defer reply.Body.Close()
	got, whole := 0, false
	for in := bufio.NewScanner(reply.Body); in.Scan(); {
		if !strings.HasPrefix(in.Text(), "data: {") {
			whole = whole || in.Text() == "data: [DONE]" && got == tokens
			continue
		}
		if got++; got == 1 {
			if stop != nil {
				stop(ranks)
			} else if err := c.Process.Signal(syscall.SIGTERM); err != nil {
				t.Fatal(err)
			}
		}
	}
	if !whole {
		t.Errorf("the stream ended after %d of %d tokens", got, tokens)
	}
	select {
	case err := <-ended:
		if err != nil {
			t.Errorf("after SIGTERM: %v, want code 0", err)
		}
	case <-time.After(patience):
		t.Error("the ranks did not end after SIGTERM")
	}
}
