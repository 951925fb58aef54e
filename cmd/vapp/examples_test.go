package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"vapp.dev/engine/backend/cuda/driver"
)

// The repository and its folder of examples, from this package.
const (
	repository  = "../.."
	examplesDir = repository + "/examples"
)

// TestExamples checks every folder of examples as examples/README.md describes: its profiles are
// valid, a folder with expect.json is planned, served and asked, and a folder with plans.json is
// planned for its targets or GPUs.
func TestExamples(t *testing.T) {
	folders, err := filepath.Glob(examplesDir + "/*/README.md")
	if err != nil || len(folders) == 0 {
		t.Fatal("no examples", err)
	}
	t.Setenv("HF_HUB_CACHE", t.TempDir()) // a cached model does not change a plan
	for _, file := range folders {
		dir := filepath.Dir(file)
		t.Run(filepath.Base(dir), func(t *testing.T) {
			vetFolder(t, dir)
			served, planned := exists(dir, "expect.json"), exists(dir, "plans.json")
			if served == planned {
				t.Fatalf("%s has expect.json: %v, and plans.json: %v; want one of them", dir, served, planned)
			}
			if served {
				serveExample(t, dir)
			} else {
				planExample(t, dir)
			}
		})
	}
}

func exists(dir, name string) bool {
	_, err := os.Stat(filepath.Join(dir, name))
	return err == nil
}

// runVapp runs the command and checks its exit code. It returns what it printed.
func runVapp(t *testing.T, code int, args ...string) string {
	t.Helper()
	var out, log bytes.Buffer
	c := exec.Command("vapp", args...)
	c.Stdout, c.Stderr = &out, &log
	got := 0
	if err := c.Run(); err != nil {
		exit := (*exec.ExitError)(nil)
		if !errors.As(err, &exit) {
			t.Fatal(err)
		}
		got = exit.ExitCode()
	}
	if got != code {
		t.Errorf("vapp %s: exit code %d, want %d\n%s%s", strings.Join(args, " "), got, code, &out, &log)
	}
	return out.String()
}

// vetFolder checks every profile of a folder.
func vetFolder(t *testing.T, dir string) {
	var list []string
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && d.Name() == "cue.mod":
			return fs.SkipDir
		case strings.HasSuffix(path, ".cue") && d.Name() != "policy.cue":
			list = append(list, path)
		}
		return nil
	})
	if err != nil || len(list) == 0 {
		t.Fatalf("%s: profiles %q, %v", dir, list, err)
	}
	runVapp(t, 0, append([]string{"vet"}, list...)...)
}

// decodeFile reads a JSON file and refuses unknown fields.
func decodeFile(t *testing.T, dir, name string, to any) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(dir, name))
	if err != nil {
		t.Fatal(err)
	}
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	if err := d.Decode(to); err != nil {
		t.Fatalf("%s/%s: %v", dir, name, err)
	}
}

// planExample runs the plans of plans.json.
func planExample(t *testing.T, dir string) {
	var file struct {
		Plans []struct {
			Profile string
			GPU     string
			Args    []string
			Code    int
			Output  []string
		}
	}
	if decodeFile(t, dir, "plans.json", &file); len(file.Plans) == 0 {
		t.Fatal("plans.json has no plans")
	}
	for _, p := range file.Plans {
		args := []string{"plan", filepath.Join(dir, p.Profile)}
		if p.GPU != "" {
			args = append(args, "--gpu", p.GPU)
		}
		args = append(args, p.Args...)
		out := runVapp(t, p.Code, args...)
		for _, pattern := range p.Output {
			if !regexp.MustCompile(pattern).MatchString(out) {
				t.Errorf("vapp %s: no match of %q in\n%s", strings.Join(args, " "), pattern, out)
			}
		}
	}
}

// exampleCase is a request of expect.json and what its reply must hold.
type exampleCase struct {
	Name    string
	Method  string
	Path    string
	Headers map[string]string
	Request string
	Status  int
	Checks  []check
}

// serveExample plans and serves the profile of a folder, and sends the requests of expect.json.
func serveExample(t *testing.T, dir string) {
	var file struct{ Cases []exampleCase }
	if decodeFile(t, dir, "expect.json", &file); len(file.Cases) == 0 {
		t.Fatal("expect.json has no cases")
	}
	switch {
	case !withC:
		t.Skip("not served: this binary has no C kernels")
	case driver.Built:
		t.Skip("not served: the build without CUDA does it")
	case runtime.GOOS == "windows":
		t.Skip("not served: there is no SIGTERM")
	}
	profile := movable(t, dir)
	runVapp(t, 0, "plan", profile)
	address := startExample(t, profile)
	for _, c := range file.Cases {
		t.Run(strings.ReplaceAll(c.Name, " ", "_"), func(t *testing.T) { c.send(t, dir, address) })
	}
}

// movable copies a folder of examples to a temporary folder and makes its server listen on a free
// port. Paths to models stay valid. It returns the profile, and skips t where the model is absent.
func movable(t *testing.T, dir string) string {
	t.Helper()
	tree := t.TempDir()
	to := filepath.Join(tree, "examples", filepath.Base(dir))
	if err := os.CopyFS(to, os.DirFS(dir)); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"models", "engine"} {
		at, err := filepath.Abs(filepath.Join(repository, name))
		if err == nil {
			err = os.Symlink(at, filepath.Join(tree, name))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	profile := filepath.Join(to, "profile.cue")
	text, err := os.ReadFile(profile)
	if err != nil {
		t.Fatal(err)
	}
	source := regexp.MustCompile(`source: "(\.\./[^"]+)"`).FindSubmatch(text)
	if source == nil {
		t.Fatalf("%s/profile.cue has no model.source relative to the folder", dir)
	}
	if _, err := os.Stat(filepath.Join(to, string(source[1]))); err != nil {
		t.Skipf("not served: %s is absent; make model fetches the default model", source[1])
	}
	end := bytes.LastIndexByte(text, '}')
	text = slices.Concat(text[:end], []byte("\tserve: {host: \"127.0.0.1\", port: 0}\n"), text[end:])
	if err := os.WriteFile(profile, text, 0o644); err != nil {
		t.Fatal(err)
	}
	return profile
}

// startExample starts a server, waits until it is ready, and returns its address. At the end of t it
// stops the server and checks its exit code.
func startExample(t *testing.T, profile string) string {
	t.Helper()
	c := exec.Command("vapp", "up", profile)
	stderr, err := c.StderrPipe()
	if err == nil {
		err = c.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	var log strings.Builder
	ready, ended := make(chan string, 1), make(chan error, 1)
	go func() {
		address := ""
		lines := bufio.NewScanner(stderr)
		lines.Buffer(nil, 1<<20)
		for lines.Scan() {
			mu.Lock()
			log.WriteString(lines.Text() + "\n")
			mu.Unlock()
			if at := listening.FindStringSubmatch(lines.Text()); at != nil {
				address = at[1]
			}
			if serving.MatchString(lines.Text()) {
				ready <- address
			}
		}
		ended <- c.Wait()
	}()
	written := func() string {
		mu.Lock()
		defer mu.Unlock()
		return log.String()
	}
	select {
	case address := <-ready:
		t.Cleanup(func() { stopExample(t, c, ended, written) })
		return address
	case err := <-ended:
		t.Fatalf("the server ended before it was ready: %v\n%s", err, written())
	case <-time.After(patience):
		c.Process.Kill()
		t.Fatalf("the server is not ready after %v\n%s", patience, written())
	}
	return ""
}

func stopExample(t *testing.T, c *exec.Cmd, ended chan error, written func() string) {
	t.Helper()
	if err := c.Process.Signal(syscall.SIGTERM); err != nil {
		t.Error(err)
	}
	select {
	case err := <-ended:
		if err != nil {
			t.Errorf("the server ended with %v, want exit code 0\n%s", err, written())
		}
	case <-time.After(patience):
		c.Process.Kill()
		t.Errorf("the server still runs %v after SIGTERM\n%s", patience, written())
	}
	if t.Failed() {
		t.Log(written())
	}
}

// send sends the request of a case and checks the reply.
func (c exampleCase) send(t *testing.T, dir, address string) {
	var body io.Reader
	if c.Request != "" {
		text, err := os.ReadFile(filepath.Join(dir, c.Request))
		if err != nil {
			t.Fatal(err)
		}
		body = bytes.NewReader(text)
	}
	if c.Method == "" {
		c.Method = http.MethodPost
	}
	if c.Status == 0 {
		c.Status = http.StatusOK
	}
	r, err := http.NewRequest(c.Method, "http://"+address+c.Path, body)
	if err != nil {
		t.Fatal(err)
	}
	if body != nil {
		r.Header.Set("Content-Type", "application/json")
	}
	for name, value := range c.Headers {
		r.Header.Set(name, value)
	}
	answer, err := (&http.Client{Timeout: patience}).Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		t.Fatal(err)
	}
	if answer.StatusCode != c.Status {
		t.Fatalf("status %d, want %d: %s", answer.StatusCode, c.Status, text)
	}
	for _, k := range c.Checks {
		if err := k.reply(answer.Header, text); err != nil {
			t.Errorf("%v in the reply\n%s", err, text)
		}
	}
}
