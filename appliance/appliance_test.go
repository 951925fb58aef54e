package appliance

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"vapp.dev/engine/backend"
	"vapp.dev/engine/backend/ref"
	"vapp.dev/engine/enginetest"
)

// server is an appliance in this process, with a toy model and backend ref.
type server struct {
	*Appliance
	url     string
	model   string // the folder
	profile string
	edited  func(string) string // changes every text of the profile; nil: none does
	log     *logBuffer
	drain   context.CancelFunc
	ended   chan error
}

// logBuffer is a log that is safe to read during writes.
type logBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *logBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *logBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// profileText returns a profile of the toy model with the fields more. maxModelLen is 256
// unless more sets it.
func profileText(toy, more string) string {
	if !strings.Contains(more, "maxModelLen:") {
		more = `maxModelLen: 256, memory: kvCache: "32MiB", ` + more
	}
	return fmt.Sprintf(`package profiles
import "vapp.dev/schema"
schema.#Profile & {
	name: "toy"
	model: source: %q
	backend: "ref"
	memory: reserve: 0
	scheduler: {maxNumSeqs: 16, maxNumBatchedTokens: 128}
	serve: {host: "127.0.0.1", port: 0}
	reload: debounce: "20ms"
	%s
}
`, toy, more)
}

// writeFile writes a file and renames it to path: a server that watches path never reads it empty.
func writeFile(t *testing.T, path, text string) {
	t.Helper()
	next := path + ".next"
	if err := os.WriteFile(next, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(next, path); err != nil {
		t.Fatal(err)
	}
}

// start starts a server of the toy model with additional fields in its profile. change is
// called before it runs.
func start(t *testing.T, more string, change ...func(*Appliance)) *server {
	t.Helper()
	return serve(t, toyModel(t), more, change...)
}

// toyModel writes the toy model and returns its folder.
func toyModel(t *testing.T) string {
	t.Helper()
	toy := filepath.Join(t.TempDir(), "toy")
	if err := enginetest.WriteLlama(toy, enginetest.Llama{Seed: 3}); err != nil {
		t.Fatal(err)
	}
	return toy
}

// endless is the number of tokens of a stream that a test does not read to its end.
const endless = 100_000

// startLong is start with a context and a KV cache for streams of endless tokens.
func startLong(t *testing.T, more string) *server {
	t.Helper()
	return serve(t, longModel(t), `maxModelLen: "128K", memory: kvCache: "72MiB", `+more)
}

// longModel writes a toy model with a long context and returns its folder.
func longModel(t *testing.T) string {
	t.Helper()
	toy := filepath.Join(t.TempDir(), "toy")
	if err := enginetest.WriteLlama(toy, enginetest.Llama{Seed: 3, MaxPos: 128 << 10}); err != nil {
		t.Fatal(err)
	}
	return toy
}

// serve is start with another model.
func serve(t *testing.T, model, more string, change ...func(*Appliance)) *server {
	t.Helper()
	return serveOn(t, ref.Opener{}, model, more, change...)
}

// serveOn is serve on another machine.
func serveOn(t *testing.T, on backend.Opener, model, more string, change ...func(*Appliance)) *server {
	t.Helper()
	return serveProfile(t, on, model, nil, more, change...)
}

// serveProfile is serveOn with a profile that edit changes; nil: none does.
func serveProfile(t *testing.T, on backend.Opener, model string, edit func(string) string, more string, change ...func(*Appliance)) *server {
	t.Helper()
	dir := t.TempDir()
	s := &server{model: model, profile: filepath.Join(dir, "p.cue"), edited: edit, log: &logBuffer{}, ended: make(chan error, 1)}
	s.write(t, "rename", profileText(model, more))
	a, err := New(Config{Profile: s.profile, Machine: Machine{Backends: []backend.Opener{on}}, Version: "test", Log: s.log})
	if err != nil {
		t.Fatal(err)
	}
	s.Appliance, s.url = a, a.scheme()+"://"+a.Addr().String()
	for _, f := range change {
		f(a)
	}
	ctx, drain := context.WithCancel(context.Background())
	s.drain = drain
	go func() { s.ended <- a.Run(ctx) }()
	t.Cleanup(func() {
		drain()
		a.Abort(errors.New("the test is over"))
		<-s.ended
	})
	s.eventually(t, "ready", func() bool { return s.status(t, "/readyz") == http.StatusOK })
	return s
}

// visitor is a client that accepts any certificate.
var visitor = func() *http.Client {
	t := http.DefaultTransport.(*http.Transport).Clone()
	t.TLSClientConfig = &tls.Config{InsecureSkipVerify: true}
	t.ForceAttemptHTTP2 = true
	return &http.Client{Transport: t}
}()

// eventually polls a condition. It fails the test after two minutes.
func (s *server) eventually(t *testing.T, what string, yes func() bool) {
	t.Helper()
	for end := time.Now().Add(2 * time.Minute); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
		if yes() {
			return
		}
	}
	t.Fatalf("not within 2 minutes: %s\n%s", what, s.log)
}

func (s *server) get(t *testing.T, path string) (int, string) {
	t.Helper()
	r, err := visitor.Get(s.url + path)
	if err != nil {
		t.Fatal(err)
	}
	b, err := io.ReadAll(r.Body)
	if err := errors.Join(err, r.Body.Close()); err != nil {
		t.Fatal(err)
	}
	return r.StatusCode, string(b)
}

func (s *server) status(t *testing.T, path string) int {
	t.Helper()
	code, _ := s.get(t, path)
	return code
}

// ask sends a completion; the caller closes the body.
func (s *server) ask(ctx context.Context, model string, tokens int, stream bool) (*http.Response, error) {
	body := fmt.Sprintf(`{"model":%q,"prompt":"hello there","max_tokens":%d,"ignore_eos":true,"temperature":0,"stream":%v}`, model, tokens, stream)
	r, err := http.NewRequestWithContext(ctx, "POST", s.url+"/v1/completions", strings.NewReader(body))
	if err != nil {
		return nil, err
	}
	r.Header.Set("Content-Type", "application/json")
	return http.DefaultClient.Do(r)
}

// modelName returns the served name of the toy model.
func (s *server) modelName() string { return s.live.Load().profile.Serve.ServedModelName[0] }

// stream reads a streamed completion to its end and returns its finish reason.
func (s *server) stream(tokens int, begun func()) (finish string, err error) {
	r, err := s.ask(context.Background(), s.modelName(), tokens, true)
	if err != nil {
		return "", err
	}
	defer r.Body.Close()
	done := false
	for lines := bufio.NewScanner(r.Body); lines.Scan(); {
		data, ok := strings.CutPrefix(lines.Text(), "data: ")
		if !ok {
			continue
		}
		if begun != nil {
			begun()
			begun = nil
		}
		var chunk struct {
			Choices []struct {
				Finish string `json:"finish_reason"`
			}
		}
		if data == "[DONE]" {
			done = true
		} else if err := json.Unmarshal([]byte(data), &chunk); err != nil {
			return "", fmt.Errorf("%s: %w", data, err)
		}
		if len(chunk.Choices) > 0 && chunk.Choices[0].Finish != "" {
			finish = chunk.Choices[0].Finish
		}
	}
	if !done {
		return finish, errors.New("the stream broke off")
	}
	return finish, nil
}

// streams starts n long streams and returns when all have a token. wait returns their
// finish reasons.
func (s *server) streams(t *testing.T, n int) (wait func()) {
	t.Helper()
	var begun, ended sync.WaitGroup
	begun.Add(n)
	for range n {
		ended.Go(func() {
			finish, err := s.stream(200, begun.Done)
			if err != nil || finish != "length" {
				t.Errorf("stream ended with %q: %v", finish, err)
			}
		})
	}
	begun.Wait()
	return ended.Wait
}

func TestPlanIsTheAllocator(t *testing.T) {
	s := start(t, `memory: swapSpace: "5MiB", log: level: "debug"`)
	_, text := s.get(t, "/metrics")
	planned := map[string]string{}
	for _, line := range strings.Split(text, "\n") {
		if name, value, ok := strings.Cut(line, " "); ok {
			planned[name] = value
		}
	}
	for a := backend.Arena(0); a < backend.Item; a++ { // a text model has no arenas of an encoder
		plan := planned[fmt.Sprintf(`vapp_plan_bytes{item="%s"}`, a)]
		actual := planned[fmt.Sprintf(`vapp_actual_bytes{item="%s"}`, a)]
		if plan == "" || plan != actual {
			t.Errorf("%s: planned %q, actual %q", a, plan, actual)
		}
		if !strings.Contains(s.log.String(), fmt.Sprintf("item=%s ", a)) {
			t.Errorf("no log line for %s", a)
		}
	}
	if strings.Count(s.log.String(), "difference=0") != int(backend.Item)+1 { // a line for each, and the sum
		t.Errorf("log:\n%s", s.log)
	}
}

func TestDrainLetsStreamsEnd(t *testing.T) {
	s := start(t, `serve: drainTimeout: "1h"`) // no machine is too slow
	wait := s.streams(t, 16)
	s.drain()
	s.eventually(t, "drain", func() bool { return s.phase.get() == Draining })
	wait()
	if err := <-s.ended; err != nil {
		t.Errorf("Run: %v", err)
	}
	s.ended <- nil
}

func TestDrainTimeout(t *testing.T) {
	s := startLong(t, `serve: drainTimeout: "1ms"`)
	var ended sync.WaitGroup
	begun := make(chan bool)
	ended.Go(func() { _, _ = s.stream(endless, func() { close(begun) }) })
	<-begun
	s.drain()
	err := <-s.ended
	if err == nil || !strings.Contains(err.Error(), "serve.drainTimeout") {
		t.Errorf("Run: %v", err)
	}
	ended.Wait()
	s.ended <- nil
}

func TestAbort(t *testing.T) {
	s := startLong(t, "")
	var ended sync.WaitGroup
	begun := make(chan bool)
	ended.Go(func() { _, _ = s.stream(endless, func() { close(begun) }) })
	<-begun
	s.drain()
	why := errors.New("a second signal")
	s.Abort(why)
	if err := <-s.ended; !errors.Is(err, why) {
		t.Errorf("Run: %v", err)
	}
	ended.Wait()
	s.ended <- nil
}

// TestDisconnect checks that the KV pages of a disconnected client are freed.
func TestDisconnect(t *testing.T) {
	s := startLong(t, "scheduler: prefixCaching: false")
	ctx, leave := context.WithCancel(context.Background())
	r, err := s.ask(ctx, s.modelName(), endless, true)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := r.Body.Read(make([]byte, 10)); err != nil {
		t.Fatal(err)
	}
	leave()
	r.Body.Close()
	s.eventually(t, "no page in use", func() bool { return s.engine().Stats().KVUsed == 0 && s.engine().Stats().Running == 0 })
	if err := s.engine().Check(context.Background()); err != nil {
		t.Error(err)
	}
	if n := s.engine().Stats().Steps; n >= endless {
		t.Errorf("%d steps: the request ran on", n)
	}
}
