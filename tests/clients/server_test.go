//go:build clients

// Package clients tests the real binary and the default model with common clients in Go,
// Python and JavaScript. It must not import vapp's packages. Start reading at TestClients
// in features_test.go.
package clients

import (
	"bufio"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/cpu"
)

// base is the URL of the server that all tests share.
var base string

// guarded is a server that requires a key.
var guarded *server

const modelName = "smollm2"

func TestMain(m *testing.M) {
	template, err := filepath.Abs("tools.jinja")
	if err != nil {
		panic(err)
	}
	s, err := startServer(sharedProfile(template) + os.Getenv("VAPP_PROFILE_EXTRA"))
	if err != nil {
		fmt.Fprintln(os.Stderr, "clients:", err)
		os.Exit(1)
	}
	base = s.url
	code := m.Run()
	if err := s.stop(); err != nil {
		fmt.Fprintln(os.Stderr, "clients: the server did not end well:", err)
		code = 1
	}
	os.RemoveAll(s.dir)
	os.Exit(code)
}

// server is a process `vapp up`.
type server struct {
	url, dir, profile string
	cmd               *exec.Cmd
	log               *tail
}

// tail collects a server's output and parses its address.
type tail struct {
	mu   sync.Mutex
	text strings.Builder
	addr chan string
}

var listening = regexp.MustCompile(`msg=listening address=\S*:(\d+)`)

func (t *tail) follow(r io.Reader) {
	for s := bufio.NewScanner(r); s.Scan(); {
		t.mu.Lock()
		t.text.WriteString(s.Text() + "\n")
		t.mu.Unlock()
		if m := listening.FindStringSubmatch(s.Text()); m != nil {
			t.addr <- m[1]
		}
	}
}

func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.text.String()
}

// profileText returns a profile of the default model on a free port with the fields more.
func profileText(model, more string) string {
	return fmt.Sprintf(`package profiles

import "vapp.dev/schema"

schema.#Profile & {
	name: "clients"
	model: source: %q
	scheduler: maxNumSeqs: 64
	serve: {host: "127.0.0.1", port: 0, servedModelName: [%q], accessLog: false, drainTimeout: "10m"}
	%s
}
`, model, modelName, more)
}

// memory is the default size of the KV cache.
const memory = "maxModelLen: \"4K\", memory: kvCache: \"512MiB\""

// sharedText is the profile of the server that all tests share: greedy by default, with a
// template that renders tools.
const sharedText = memory + `
	sampling: temperature: 0
	parsers: {toolCall: "hermes", autoToolChoice: true, chatTemplate: %q}
	cpu: variant: %q
`

// sharedProfile returns sharedText with the template file's path.
func sharedProfile(template string) string { return fmt.Sprintf(sharedText, template, floatVariant()) }

// floatVariant returns the kernel variant that computes in float32. With it the small model
// writes a call unprompted; with rounded activations it writes another text.
func floatVariant() string {
	switch x := cpu.X86; {
	case x.HasAVX512F && x.HasAVX512BW && x.HasAVX512DQ && x.HasAVX512VL:
		return "avx512"
	case x.HasAVX2 && x.HasFMA:
		return "avx2"
	}
	return "auto"
}

// guardedText has a key for each client, limited to twelve requests a minute.
const guardedText = `
	maxModelLen: "1K", memory: kvCache: "64MiB"
	serve: perKey: requestsPerMinute: 12
	serve: apiKeys: ["openai-python", "openai-node", "openai-go", "anthropic-python", "anthropic-go", "langchain", "litellm"]
`

// startServer runs bin/vapp with the default model and waits until it is ready.
func startServer(more string) (*server, error) {
	if more == "" {
		more = memory
	}
	return startModel("../../models/SmolLM2-135M-Instruct.Q4_1.gguf", more)
}

// startModel is startServer with the model at path.
func startModel(path, more string) (*server, error) {
	bin, err := filepath.Abs("../../bin/vapp")
	if err != nil {
		return nil, err
	}
	model, err := filepath.Abs(path)
	if err != nil {
		return nil, err
	}
	for _, f := range []string{bin, model} {
		if _, err := os.Stat(f); err != nil {
			return nil, fmt.Errorf("%w; `make build model` makes it", err)
		}
	}
	dir, err := os.MkdirTemp("", "vapp-clients-")
	if err != nil {
		return nil, err
	}
	s := &server{dir: dir, log: &tail{addr: make(chan string, 1)}}
	if s.profile, err = writeProfile(dir, model, more); err != nil {
		return nil, err
	}
	s.cmd = exec.Command(bin, "up", s.profile)
	return s, s.start()
}

// writeProfile writes profileText into a directory.
func writeProfile(dir, model, more string) (string, error) {
	path := filepath.Join(dir, "p.cue")
	return path, os.WriteFile(path, []byte(profileText(model, more)), 0o644)
}

// start runs the server's command and waits until it is ready.
func (s *server) start() error {
	out, err := s.cmd.StderrPipe()
	if err != nil {
		return err
	}
	if err := s.cmd.Start(); err != nil {
		return err
	}
	go s.log.follow(out)
	select {
	case port := <-s.log.addr:
		s.url = "http://127.0.0.1:" + port
	case <-time.After(time.Minute):
		return fmt.Errorf("the server does not listen:\n%s", s.log)
	}
	return s.ready()
}

func (s *server) ready() error {
	for end := time.Now().Add(2 * time.Minute); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		r, err := http.Get(s.url + "/readyz")
		if err != nil {
			return err
		}
		r.Body.Close()
		if r.StatusCode == http.StatusOK {
			return nil
		}
	}
	return fmt.Errorf("the server is not ready after two minutes:\n%s", s.log)
}

// stop drains the server. It returns an error for an exit code other than 0.
func (s *server) stop() error {
	if err := s.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		return err
	}
	if err := s.cmd.Wait(); err != nil {
		return fmt.Errorf("%w:\n%s", err, s.log)
	}
	return nil
}
