package routers

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

// program returns the path in a variable of the environment, which make routers sets.
func program(t *testing.T, variable string) string {
	t.Helper()
	p := os.Getenv(variable)
	if p == "" {
		t.Skipf("not run: %s is not set; make routers sets it", variable)
	}
	return p
}

// start runs a program until the test ends; its output is in a file that a failed test prints the end of.
func start(t *testing.T, env []string, name string, args ...string) {
	t.Helper()
	path := filepath.Join(t.TempDir(), filepath.Base(name)+".log")
	log, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	c := exec.Command(name, args...)
	c.Stdout, c.Stderr, c.Env = log, log, append(os.Environ(), env...)
	c.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = syscall.Kill(-c.Process.Pid, syscall.SIGTERM)
		ended := make(chan struct{})
		go func() { _ = c.Wait(); close(ended) }()
		select {
		case <-ended:
		case <-time.After(10 * time.Second):
			_ = syscall.Kill(-c.Process.Pid, syscall.SIGKILL)
		}
		if text, _ := os.ReadFile(path); t.Failed() {
			t.Logf("%s: …%s", filepath.Base(name), text[max(0, len(text)-3000):])
		}
	})
}

// await calls ok until it returns true, at most for two minutes.
func await(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(2 * time.Minute); !ok(); time.Sleep(50 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%s: not within two minutes", what)
		}
	}
}

// freePort returns a port that is free on all of these addresses.
func freePort(t *testing.T, hosts ...string) string {
	t.Helper()
next:
	for range 100 {
		l, err := net.Listen("tcp", hosts[0]+":0")
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		_, port, _ := net.SplitHostPort(l.Addr().String())
		for _, h := range hosts[1:] {
			o, err := net.Listen("tcp", net.JoinHostPort(h, port))
			if err != nil {
				continue next
			}
			defer o.Close()
		}
		return port
	}
	t.Fatal("no free port")
	return ""
}

// hosts are the addresses of the two pods.
var hosts = []string{"127.0.0.2", "127.0.0.3"}

// fleet starts vapp on both addresses, on the same port, and returns the port. more are further arguments of each.
func fleet(t *testing.T, more ...[]string) string {
	t.Helper()
	vapp, profile := program(t, "VAPP"), program(t, "VAPP_PROFILE")
	port := freePort(t, hosts...)
	for i, h := range hosts {
		args := []string{"up", profile, "--host", h, "--port", port, "--max-num-seqs", "16", "--set", "serve.metricsCompat=true"}
		if more != nil {
			args = append(args, more[i]...)
		}
		start(t, nil, vapp, args...)
	}
	for _, h := range hosts {
		await(t, h+" is ready", func() bool { return answers("http://" + h + ":" + port + "/health") })
	}
	return port
}

// answers reports whether a route answers with 200.
func answers(url string) bool {
	r, err := http.Get(url)
	if err != nil {
		return false
	}
	r.Body.Close()
	return r.StatusCode == http.StatusOK
}

// get returns the body of a route.
func get(t *testing.T, url string) string {
	t.Helper()
	r, err := http.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Body.Close()
	text, err := io.ReadAll(r.Body)
	if err != nil || r.StatusCode != http.StatusOK {
		t.Fatalf("%s: %s, %v", url, r.Status, err)
	}
	return string(text)
}

// body returns a completion request.
func body(prompt string, tokens int, stream bool) []byte {
	b, _ := json.Marshal(map[string]any{"model": "smollm2", "prompt": prompt, "max_tokens": tokens, "ignore_eos": true, "stream": stream})
	return b
}

// occupy opens that many streams at url, which all reach a server, and returns when 16 of them run there and the others wait.
// Their requests name a session, unless it is empty.
func occupy(t *testing.T, url, server string, n int, session string) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	var all sync.WaitGroup
	var lost atomic.Int32
	t.Cleanup(func() {
		if lost.Load() > 0 {
			t.Errorf("%d streams ended before the test", lost.Load())
		}
		cancel()
		all.Wait()
	})
	for i := range n {
		all.Go(func() {
			q, _ := http.NewRequestWithContext(ctx, "POST", url+"/v1/completions", bytes.NewReader(body(fmt.Sprint("Story ", i), 8000, true)))
			q.Header.Set("Content-Type", "application/json")
			if session != "" {
				q.Header.Set(sessionKey, session)
			}
			r, err := http.DefaultClient.Do(q)
			if err == nil {
				for s := bufio.NewScanner(r.Body); s.Scan(); {
				}
				r.Body.Close()
			}
			if ctx.Err() == nil {
				lost.Add(1)
			}
		})
	}
	await(t, "streams run", func() bool {
		m := get(t, server+"/metrics")
		return strings.Contains(m, sample(m, "vllm:num_requests_running")+" 16") && strings.Contains(m, sample(m, "vllm:num_requests_waiting")+fmt.Sprint(" ", n-16))
	})
}

// sample returns the first line of a metric, without its value.
func sample(text, name string) string {
	for line := range strings.Lines(text) {
		if rest, ok := strings.CutPrefix(line, name); ok && (rest[0] == '{' || rest[0] == ' ') {
			return line[:strings.LastIndexByte(line, ' ')]
		}
	}
	return "absent: " + name
}

// complete posts a request and returns an error unless it is answered.
func complete(url string, request []byte) error {
	r, err := http.Post(url+"/v1/completions", "application/json", bytes.NewReader(request))
	if err != nil {
		return err
	}
	defer r.Body.Close()
	if text, _ := io.ReadAll(r.Body); r.StatusCode != http.StatusOK {
		return fmt.Errorf("%s: %s %s", url, r.Status, text)
	}
	return nil
}

// post posts an empty request.
func post(url string) error {
	r, err := http.Post(url, "", nil)
	if err != nil {
		return err
	}
	defer r.Body.Close()
	if text, _ := io.ReadAll(r.Body); r.StatusCode/100 != 2 {
		return fmt.Errorf("%s: %s %s", url, r.Status, text)
	}
	return nil
}
