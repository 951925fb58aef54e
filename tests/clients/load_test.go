//go:build clients

package clients

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// streams is the number of requests at once.
const streams = 64

// prompt returns prompt i of a mixed load, with a few to some hundred words.
func prompt(i int) string {
	topics := []string{"the sea", "bread", "trains", "winter", "music", "mountains", "tea", "stars"}
	text := fmt.Sprintf("Question %d: tell me about %s.", i, topics[i%len(topics)])
	items := (i * 7) % 20
	if i%25 == 24 {
		items = 60
	}
	for k := range items {
		text += fmt.Sprintf(" Remember item %d.", k)
	}
	return text
}

func maxTokens(i int) int { return 4 + (i*11)%97 }

// reply streams chat i from a server and returns its text.
func reply(url string, i int) (string, error) { return replyOf(url, i, maxTokens(i)) }

// replyOf is reply with a number of tokens.
func replyOf(url string, i, tokens int) (string, error) {
	body, err := json.Marshal(map[string]any{
		"model": modelName, "stream": true, "temperature": 0, "max_tokens": tokens, "ignore_eos": true,
		"messages": []any{map[string]string{"role": "user", "content": prompt(i)}},
	})
	if err != nil {
		return "", err
	}
	r, err := http.Post(url+"/v1/chat/completions", "application/json", bytes.NewReader(body))
	if err != nil {
		return "", err
	}
	defer r.Body.Close()
	if r.StatusCode != http.StatusOK {
		b, _ := io.ReadAll(r.Body)
		return "", fmt.Errorf("request %d: %s: %s", i, r.Status, b)
	}
	text, finish, done := "", "", false
	for s := bufio.NewScanner(r.Body); s.Scan(); {
		data, ok := strings.CutPrefix(s.Text(), "data: ")
		switch {
		case !ok:
		case data == "[DONE]":
			done = true
		default:
			var c struct {
				Choices []struct {
					Delta  struct{ Content string }
					Finish string `json:"finish_reason"`
				}
			}
			if err := json.Unmarshal([]byte(data), &c); err != nil {
				return "", fmt.Errorf("request %d: %s: %w", i, data, err)
			}
			for _, ch := range c.Choices {
				text += ch.Delta.Content
				finish += ch.Finish
			}
		}
	}
	if !done || finish != "length" {
		return "", fmt.Errorf("request %d: broke off (finish %q)", i, finish)
	}
	return text, nil
}

// together sends all requests, streams at a time, and returns their texts. It calls half
// when half of them have started.
func together(t *testing.T, url string, half func()) []string {
	t.Helper()
	out := make([]string, total)
	next := make(chan int)
	var wg sync.WaitGroup
	for range streams {
		wg.Go(func() {
			for i := range next {
				text, err := reply(url, i)
				if err != nil {
					t.Error(err)
				}
				out[i] = text
			}
		})
	}
	for i := range total {
		if i == total/2 {
			half()
		}
		next <- i
	}
	close(next)
	wg.Wait()
	return out
}

// One in this many requests of a load is also sent alone.
const every = 6

// alone returns the replies to one request in six, sent one at a time to a server with
// the same kernels. The prefix cache does not affect the comparison, since the same
// kernels computed its pages.
func alone(t *testing.T) []string {
	t.Helper()
	s, err := startServer(memory)
	if err != nil {
		t.Fatal(err)
	}
	out := make([]string, total)
	for i := 0; i < total; i += every {
		if out[i], err = reply(s.url, i); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.stop(); err != nil {
		t.Fatal(err)
	}
	return out
}

// metric returns the sum of a metric's series.
func metric(t *testing.T, url, name string) float64 {
	t.Helper()
	r, err := http.Get(url + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer r.Body.Close()
	sum := 0.0
	for s := bufio.NewScanner(r.Body); s.Scan(); {
		rest, ok := strings.CutPrefix(s.Text(), name)
		if !ok || rest == "" || rest[0] != '{' && rest[0] != ' ' || strings.Contains(rest, `item="mapped"`) {
			continue
		}
		v, err := strconv.ParseFloat(rest[strings.LastIndexByte(rest, ' ')+1:], 64)
		if err != nil {
			t.Fatal(err)
		}
		sum += v
	}
	return sum
}

// drift is the allowed growth of resident memory in the second half of a load. Go's heap
// varies this much between collections; a leak of 256 KiB per request exceeds it.
const drift = 32 << 20

// memoryOf returns a line of a process's status in bytes: VmRSS:, the resident memory, or
// VmHWM:, its maximum.
func memoryOf(t *testing.T, pid int, line string) float64 {
	t.Helper()
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Skip("not run: no /proc on this machine")
	}
	for s := range strings.Lines(string(b)) {
		if f := strings.Fields(s); len(f) > 1 && f[0] == line {
			kb, err := strconv.ParseFloat(f[1], 64)
			if err != nil {
				t.Fatal(err)
			}
			return kb * 1024
		}
	}
	t.Fatalf("no %s", line)
	return 0
}

// TestLoad checks that all of the requests (300 with the tag soak) over 64 streams are answered; that each reply is
// the same with pages for all sequences and with so few that sequences are preempted, and
// one in six the same as when sent alone; that the process stays within its plan; and that
// its memory does not grow in the second half.
func TestLoad(t *testing.T) {
	lone := alone(t)
	var reference []string
	for _, c := range []struct {
		name, more string
		preempted  bool
	}{
		{"pages for all", memory, false},
		{"few pages", `maxModelLen: 640, memory: kvCache: "15MiB"`, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			s, err := startServer(c.more)
			if err != nil {
				t.Fatal(err)
			}
			at := time.Now()
			var half float64
			got := together(t, s.url, func() { half = memoryOf(t, s.cmd.Process.Pid, "VmRSS:") })
			took := time.Since(at)
			different := differences(t, got, lone, "alone")
			if reference == nil {
				reference = got
			}
			different += differences(t, got, reference, "with pages for all")
			preemptions := metric(t, s.url, "vllm:num_preemptions_total")
			if (preemptions > 0) != c.preempted {
				t.Errorf("%v preemptions", preemptions)
			}
			plan, rss := metric(t, s.url, "vapp_plan_bytes"), memoryOf(t, s.cmd.Process.Pid, "VmHWM:")
			if end := memoryOf(t, s.cmd.Process.Pid, "VmRSS:"); end > half+drift {
				t.Errorf("%.0f bytes are resident after %d requests, %.0f were after half of them", end, total, half)
			}
			if rss >= plan {
				t.Errorf("resident memory peaked at %.0f bytes, above the plan's %.0f", rss, plan)
			}
			t.Logf("%d requests, %d streams in %v: %d different, %.0f preemptions, peak RSS %.0f of planned %.0f bytes",
				total, streams, took.Round(time.Millisecond), different, preemptions, rss, plan)
			if err := s.stop(); err != nil {
				t.Error(err)
			}
		})
	}
}

// differences returns the number of replies that differ from want; "" in want: not compared.
func differences(t *testing.T, got, want []string, how string) int {
	t.Helper()
	n := 0
	for i := range want {
		if want[i] == "" || got[i] == want[i] {
			continue
		}
		if n++; n <= 3 {
			t.Errorf("request %d: %q, %s %q", i, got[i], how, want[i])
		}
	}
	return n
}

// TestReloadUnderLoad changes the profile while 64 streams run. A live change must take
// effect, a structural and an invalid one must change nothing, and no stream may fail.
func TestReloadUnderLoad(t *testing.T) {
	s, err := startServer(memory)
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	for i := range streams {
		wg.Go(func() {
			if _, err := reply(s.url, i+200); err != nil {
				t.Error(err)
			}
		})
	}
	text, err := os.ReadFile(s.profile)
	if err != nil {
		t.Fatal(err)
	}
	edit := func(from, to string) {
		t.Helper()
		if err := os.WriteFile(s.profile+".new", []byte(strings.Replace(string(text), from, to, 1)), 0o644); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(s.profile+".new", s.profile); err != nil {
			t.Fatal(err)
		}
	}
	within := func(what string, yes func() bool) {
		t.Helper()
		at := time.Now()
		for !yes() {
			if time.Since(at) > 20*time.Second {
				t.Fatalf("never: %s\n%s", what, s.log)
			}
			time.Sleep(10 * time.Millisecond)
		}
		t.Logf("%s after %v", what, time.Since(at).Round(time.Millisecond))
	}
	edit(`["smollm2"]`, `["smollm2", "newname"]`)
	within("the new name is served", func() bool {
		r, err := http.Get(s.url + "/v1/models/newname")
		if err != nil {
			t.Fatal(err)
		}
		r.Body.Close()
		return r.StatusCode == http.StatusOK
	})
	edit("maxNumSeqs: 64", "maxNumSeqs: 32")
	within("the structural change is reported", func() bool { return strings.Contains(s.log.String(), "structural change needs a restart") })
	edit("maxNumSeqs: 64", "maxNumSeqs: many")
	within("the broken profile is refused", func() bool { return strings.Contains(s.log.String(), "outcome=rejected") })
	wg.Wait()
	if err := s.stop(); err != nil {
		t.Error(err)
	}
}

// TestTerminate sends SIGTERM while 16 streams run. All must complete, and the exit code
// must be 0.
func TestTerminate(t *testing.T) {
	s, err := startServer(memory)
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	for i := range 16 {
		wg.Go(func() {
			if _, err := replyOf(s.url, i, 200); err != nil {
				t.Error(err)
			}
		})
	}
	for at := time.Now(); metric(t, s.url, "vllm:num_requests_running") < 16; time.Sleep(2 * time.Millisecond) {
		if time.Since(at) > time.Minute {
			t.Fatalf("16 streams do not run at once\n%s", s.log)
		}
	}
	if err := s.stop(); err != nil {
		t.Error(err)
	}
	wg.Wait()
}
