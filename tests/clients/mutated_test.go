//go:build clients

package clients

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"vapp.dev/tests/mutate"
)

var mutations = flag.Int("mutations", 10_000, "how many requests TestMutated sends")

// mutantText is the profile of a server that enables everything that requests can use.
const mutantText = `
	maxModelLen: 512, memory: kvCache: "256MiB"
	parsers: {toolCall: "hermes", autoToolChoice: true, trustRequestChatTemplate: true, chatTemplate: %q}
`

// patience is the time limit of a reply on a busy machine.
const patience = 2 * time.Minute

// TestMutated sends mutated requests from /openapi.json, most of them invalid. Every reply
// must arrive, none may be an internal error, refusals must have the form of errors,
// nothing may be logged at level error, and memory must stay within its limit.
func TestMutated(t *testing.T) {
	template, err := filepath.Abs("tools.jinja")
	if err != nil {
		t.Fatal(err)
	}
	s, err := startServer(fmt.Sprintf(mutantText, template))
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(s.dir)
	doc, err := http.Get(s.url + "/openapi.json")
	if err != nil {
		t.Fatal(err)
	}
	text, err := io.ReadAll(doc.Body)
	doc.Body.Close()
	if err != nil {
		t.Fatal(err)
	}
	m, err := mutate.New(text, []string{"POST /v1/audio/transcriptions", "POST /sleep", "POST /v1/nothing"}, uint64(*mutations))
	if err != nil {
		t.Fatal(err)
	}
	before := resident(t, s)
	run := &mutated{s: s, statuses: map[int]int{}}
	start := time.Now()
	run.all(m)
	after := resident(t, s)
	t.Logf("%d requests in %s: statuses %v, the slowest answer %s (%s), resident %d MiB before, %d after",
		*mutations, time.Since(start).Round(time.Second), run.statuses, run.slowest.Round(time.Millisecond), run.slow, before>>20, after>>20)
	for _, f := range run.failed {
		t.Error(f)
	}
	if after > before+1<<30 {
		t.Errorf("the server holds %d MiB more than before", (after-before)>>20)
	}
	for _, line := range regexp.MustCompile(`(?m)^.*(?:level=ERROR|panic).*$`).FindAllString(s.log.String(), 10) {
		t.Errorf("the server says %.1500s", line)
	}
	if err := s.stop(); err != nil {
		t.Error(err)
	}
}

// mutated collects the results of the requests.
type mutated struct {
	s        *server
	mu       sync.Mutex
	statuses map[int]int
	failed   []string
	slowest  time.Duration
	slow     string
}

// all sends the requests, four at a time.
func (r *mutated) all(m *mutate.Maker) {
	work := make(chan mutate.Request)
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for q := range work {
				r.one(q)
			}
		})
	}
	for range *mutations {
		work <- m.Next()
	}
	close(work)
	wg.Wait()
}

func (r *mutated) one(q mutate.Request) {
	start := time.Now()
	status, err := r.s.send(q)
	took := time.Since(start)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.statuses[status]++
	if took > r.slowest {
		r.slowest, r.slow = took, fmt.Sprintf("%s %s: %s", q.Method, q.Path, strings.Join(q.How, ", "))
	}
	if err != nil && len(r.failed) < 20 {
		r.failed = append(r.failed, fmt.Sprintf("%v\n%s", err, q))
	}
}

// send sends one request and checks the reply.
func (s *server) send(q mutate.Request) (int, error) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, q.Method, s.url, bytes.NewReader(q.Body))
	if err != nil {
		return 0, err
	}
	path, query, _ := strings.Cut(q.Path, "?")
	r.URL = &url.URL{Scheme: "http", Host: r.URL.Host, Opaque: "//" + r.URL.Host + path, RawQuery: query}
	for k, v := range q.Header {
		r.Header.Set(k, v)
	}
	w, err := http.DefaultClient.Do(r)
	if err != nil {
		return 0, fmt.Errorf("no answer: %w", err)
	}
	defer w.Body.Close()
	body, err := io.ReadAll(w.Body)
	if err != nil && !errors.Is(err, io.EOF) {
		return w.StatusCode, fmt.Errorf("half an answer: %w", err)
	}
	if strings.HasPrefix(q.Path, "/metrics") || strings.HasPrefix(q.Path, "/ping") || strings.HasPrefix(q.Path, "/health") {
		return w.StatusCode, nil
	}
	return w.StatusCode, mutate.Judge(q, w.StatusCode, w.Header.Get("Content-Type"), body)
}

// resident returns the resident memory of the server's process in bytes.
func resident(t *testing.T, s *server) int64 {
	t.Helper()
	text, err := os.ReadFile("/proc/" + strconv.Itoa(s.cmd.Process.Pid) + "/status")
	if err != nil {
		t.Skipf("no memory of processes on this system: %v", err)
	}
	for line := range strings.Lines(string(text)) {
		if f := strings.Fields(line); len(f) > 1 && f[0] == "VmRSS:" {
			n, err := strconv.ParseInt(f[1], 10, 64)
			if err != nil {
				t.Fatal(err)
			}
			return n << 10
		}
	}
	t.Fatal("no VmRSS")
	return 0
}
