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

// requests in all, and how many at once.
const (
	total   = 300
	streams = 64
)

// prompt i of a mixed load: a few words to some hundred.
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

// replyOf is reply with that many tokens.
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

// together sends all requests, streams at a time, and returns their texts. half is called
// when half of them have been begun.
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

// every so many requests of a load one is also sent alone.
const every = 6

// alone are the replies that one request in six gets of a server that computes as
// those under load do, with the server to itself; a prefix cache would hide nothing
// here, since its pages hold what the same kernels computed.
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

// metric reads the sum of a metric's series.
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

// drift is what resident memory may gain over the second half of a load: what Go's heap
// holds between two collections moves by as much, and a leak of 256 KiB a request shows.
const drift = 32 << 20

// memoryOf is a line of a process's status in bytes: VmRSS:, what is resident, or VmHWM:, the
// most that was.
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

// TestLoad says that none of 300 requests over 64 streams is lost, that each gets
// the same with room for all and with so few pages that sequences are preempted,
// and one in six what it gets alone; and that the process stays inside its plan, and takes
// no more memory for the second half of them than for the first.
func TestLoad(t *testing.T) {
	lone := alone(t)
	var roomy []string
	for _, c := range []struct {
		name, more string
		preempted  bool
	}{
		{"room for all", memory, false},
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
			if roomy == nil {
				roomy = got
			}
			different += differences(t, got, roomy, "with room for all")
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

// differences counts the replies that are not those wanted; "" stands for one that
// was not asked for.
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

// TestReloadUnderLoad changes the profile while 64 streams run: a live change is
// served within a second, a structural and a broken one change nothing, and no
// stream is lost.
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

// TestTerminate sends SIGTERM while 16 streams run: all end as they should, and
// the exit code is 0.
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
