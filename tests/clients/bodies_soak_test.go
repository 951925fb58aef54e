//go:build clients && soak

package clients

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// The bodies and limits of TestBodies.
const (
	bodyBytes   = 16 << 20 // the default of serve.limits.maxBodyBytes
	manyClients = 200
	spare       = 16 << 20 // of the control group beyond the plan
	widestGap   = 500 * time.Millisecond
	backWithin  = 10 * time.Second
	backTo      = 32 << 20 // above what was resident before
)

// bodyRoutes lists the routes with a body. In each body, %s stands for a text or an array.
var bodyRoutes = map[string]string{
	"/v1/chat/completions":        `{"max_tokens":1,"messages":[{"role":"user","content":%s}]}`,
	"/v1/chat/completions/render": `{"max_tokens":1,"messages":[{"role":"user","content":%s}]}`,
	"/v1/chat/completions/batch":  `{"max_tokens":1,"messages":[[{"role":"user","content":%s}]]}`,
	"/v1/completions":             `{"max_tokens":1,"truncate_prompt_tokens":8,"prompt":%s}`,
	"/v1/completions/render":      `{"max_tokens":1,"prompt":%s}`,
	"/inference/v1/generate":      `{"sampling_params":{"max_tokens":1,"bad_words":["x"]},"token_ids":%s}`,
	"/invocations":                `{"max_tokens":1,"prompt":%s}`,
	"/tokenize":                   `{"prompt":%s}`,
	"/detokenize":                 `{"tokens":%s}`,
	"/v1/responses":               `{"max_output_tokens":1,"truncation":"auto","input":%s}`,
	"/v1/messages":                `{"max_tokens":1,"messages":[{"role":"user","content":%s}]}`,
	"/v1/messages/count_tokens":   `{"messages":[{"role":"user","content":%s}]}`,
	"/v1/embeddings":              `{"input":%s}`,
	"/pooling":                    `{"input":%s}`,
	"/classify":                   `{"input":%s}`,
	"/score":                      `{"text_1":"x","text_2":%s}`,
	"/rerank":                     `{"query":"x","documents":%s}`,
}

// fillings make the text or array of a body.
var fillings = map[string]func(n int) string{
	"digits": func(n int) string { return `"` + strings.Repeat("1234567890", n/10) + `"` },
	"spaces": func(n int) string { return `"` + strings.Repeat(" ", n-2) + `"` },
	"emoji":  func(n int) string { return `"` + strings.Repeat("😀👩‍🚀", (n-2)/len("😀👩‍🚀")) + `"` },
	"random": func(n int) string {
		b := make([]byte, n-2)
		random := rand.New(rand.NewPCG(1, 2))
		for i := range b {
			if b[i] = byte(random.Uint32()); b[i] < ' ' || b[i] == '"' || b[i] == '\\' {
				b[i] = 'a'
			}
		}
		return `"` + string(b) + `"`
	},
	"ids":    func(n int) string { return "[" + strings.Repeat("1,", (n-4)/2) + "1]" },
	"texts":  func(n int) string { return "[" + strings.Repeat(`"a",`, (n-6)/4) + `"a"]` },
	"nested": func(n int) string { return "[" + strings.Repeat(`[[1]],`, (n-8)/6) + `[]]` },
}

// TestBodies sends the largest bodies to every route, from one and from 200 clients. The
// server's cgroup has 16 MiB more than its plan. The server must survive, keep sending
// tokens to another client, and free the memory afterwards.
func TestBodies(t *testing.T) {
	flood := buildFlood(t)
	var s *server
	var group cgroup
	var watch *observer
	var idle int64
	begin := func() {
		s, group = startInGroup(t)
		send(t, s, flood, "/tokenize", []byte(`{"prompt":"warm"}`), 1)
		watch = observe(s)
		watch.wait() // so that one-time allocations are done
		idle = group.used(t)
	}
	begin()
	t.Logf("%-28s %-7s %7s  %-32s %8s %6s %7s %7s %9s %6s", "route", "body", "clients", "replies", "seconds", "cpu", "gap", "at", "resident", "back")
	for _, path := range slices.Sorted(maps.Keys(bodyRoutes)) {
		for _, name := range slices.Sorted(maps.Keys(fillings)) {
			body := []byte(fmt.Sprintf(bodyRoutes[path], fillings[name](bodyBytes-len(bodyRoutes[path]))))
			for _, clients := range []int{1, manyClients} {
				t.Run(fmt.Sprintf("%s/%s/%d", strings.ReplaceAll(path[1:], "/", "_"), name, clients), func(t *testing.T) {
					watch.reset()
					at, busy := time.Now(), s.processor(t)
					replies := send(t, s, flood, path, body, clients)
					took, most := time.Since(at), group.used(t)
					back := time.Now()
					for group.used(t) > idle+backTo && time.Since(back) < backWithin {
						time.Sleep(50 * time.Millisecond)
					}
					gap, end := watch.widest()
					t.Logf("%-28s %-7s %7d  %-32s %7.1fs %5.1fs %5dms %6.1fs %5d MiB %5.1fs", path, name, clients, replies,
						took.Seconds(), (s.processor(t) - busy).Seconds(), gap.Milliseconds(), end.Sub(at).Seconds(), most>>20, time.Since(back).Seconds())
					if s.ready() != nil {
						t.Fatal("the server is gone")
					}
					if gap > widestGap {
						t.Errorf("another client waited %v for a token", gap)
					}
					if used := group.used(t); used > idle+backTo {
						t.Errorf("%d MiB are resident %v later, %d were before", used>>20, backWithin, idle>>20)
					}
				})
				if s.ready() != nil {
					watch.stop()
					t.Logf("%v; a new one is started", s.cmd.Wait())
					begin()
				}
			}
		}
	}
	if err := watch.stop(); err != nil {
		t.Errorf("the other client's stream broke: %v", err)
	}
	if err := s.stop(); err != nil {
		t.Error(err)
	}
}

// processor returns the CPU time of a server.
func (s *server) processor(t *testing.T) time.Duration {
	t.Helper()
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", s.cmd.Process.Pid))
	if err != nil {
		t.Fatal(err)
	}
	f := strings.Fields(string(b[bytes.LastIndexByte(b, ')')+1:]))
	user, err := strconv.ParseInt(f[11], 10, 64) // in ticks of 10 ms
	system, failed := strconv.ParseInt(f[12], 10, 64)
	if err := errors.Join(err, failed); err != nil {
		t.Fatal(err)
	}
	return time.Duration(user+system) * 10 * time.Millisecond
}

// startInGroup runs the server in a cgroup with the plan's total plus spare.
func startInGroup(t *testing.T) (*server, cgroup) {
	t.Helper()
	const more = `maxModelLen: "4K", memory: kvCache: "128MiB"`
	bin, err := filepath.Abs("../../bin/vapp")
	if err != nil {
		t.Fatal(err)
	}
	model, err := filepath.Abs("../../models/SmolLM2-135M-Instruct.Q4_1.gguf")
	if err != nil {
		t.Fatal(err)
	}
	s := &server{dir: t.TempDir(), log: &tail{addr: make(chan string, 1)}}
	if s.profile, err = writeProfile(s.dir, model, more); err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command(bin, "plan", "--json", s.profile).Output()
	if err != nil {
		t.Fatal(err)
	}
	var plan struct {
		Total int64 `json:"total_bytes"`
	}
	if err := json.Unmarshal(out, &plan); err != nil || plan.Total == 0 {
		t.Fatalf("vapp plan --json: %v, total %d", err, plan.Total)
	}
	group := newCgroup(t, plan.Total+spare)
	t.Logf("the plan's total is %d MiB, the group has %d MiB", plan.Total>>20, (plan.Total+spare)>>20)
	argv := group.command(bin, "up", s.profile)
	s.cmd = exec.Command(argv[0], argv[1:]...)
	if err := s.start(); err != nil {
		t.Fatal(err)
	}
	return s, group
}

// send posts a body from several clients at once with the program flood, and returns the
// number of replies by status. flood has the lowest priority: it stands for other machines
// and must not take CPU time from the server and the observer.
func send(t *testing.T, s *server, flood, path string, body []byte, clients int) string {
	t.Helper()
	cmd := exec.Command("nice", "-n", "19", flood, s.url+path, strconv.Itoa(clients))
	cmd.Stdin = bytes.NewReader(body)
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("the clients: %v", err)
	}
	return string(out)
}

// buildFlood builds the program flood and returns its path.
func buildFlood(t *testing.T) string {
	t.Helper()
	bin := filepath.Join(t.TempDir(), "flood")
	if out, err := exec.Command("go", "build", "-o", bin, "./flood").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return bin
}

// observer is a client that reads a stream while others send bodies.
type observer struct {
	mu   sync.Mutex
	last time.Time
	gap  time.Duration
	when time.Time // end of the gap
	stop func() error
	seen chan struct{} // closed with the first gap
	once sync.Once
}

// wait returns when tokens arrive.
func (o *observer) wait() { <-o.seen }

// observe reads one streamed reply after the other.
func observe(s *server) *observer {
	ctx, cancel := context.WithCancel(context.Background())
	o := &observer{seen: make(chan struct{})}
	done := make(chan error, 1)
	o.stop = func() error { cancel(); return <-done }
	go func() {
		var err error
		for ctx.Err() == nil && err == nil {
			err = o.stream(ctx, s)
		}
		if errors.Is(err, context.Canceled) || ctx.Err() != nil {
			err = nil
		}
		done <- err
	}()
	return o
}

func (o *observer) stream(ctx context.Context, s *server) error {
	body := `{"prompt":"Once upon a time","stream":true,"max_tokens":3900,"ignore_eos":true,"temperature":0}`
	r, err := http.NewRequestWithContext(ctx, "POST", s.url+"/v1/completions", strings.NewReader(body))
	if err != nil {
		return err
	}
	r.Header.Set("Content-Type", "application/json")
	reply, err := http.DefaultClient.Do(r)
	if err != nil {
		return err
	}
	defer reply.Body.Close()
	if reply.StatusCode != http.StatusOK {
		time.Sleep(100 * time.Millisecond) // refused: the server is full
		return nil
	}
	o.mu.Lock()
	o.last = time.Time{} // the time to the first token does not count as a gap
	o.mu.Unlock()
	done := false
	for lines := bufio.NewScanner(reply.Body); lines.Scan(); {
		if strings.HasPrefix(lines.Text(), "data: {") {
			o.token(time.Now())
		}
		done = done || lines.Text() == "data: [DONE]"
	}
	if !done {
		return fmt.Errorf("it ended without [DONE]")
	}
	return nil
}

func (o *observer) token(now time.Time) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if !o.last.IsZero() {
		if gap := now.Sub(o.last); gap > o.gap {
			o.gap, o.when = gap, now
		}
		o.once.Do(func() { close(o.seen) })
	}
	o.last = now
}

func (o *observer) reset() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.gap = 0
}

// widest returns the widest gap since reset, the current gap included, and its end.
func (o *observer) widest() (time.Duration, time.Time) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if now := time.Now(); !o.last.IsZero() && now.Sub(o.last) > o.gap {
		return now.Sub(o.last), now
	}
	return o.gap, o.when
}
