//go:build clients

package clients

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"text/tabwriter"
	"time"
)

// stream is a request whose reply is read to the end.
type stream struct {
	first  chan struct{} // closed by the first token
	done   chan struct{}
	err    error // of the connection
	text   int   // events with text
	error  string
	finish string // the last finish_reason
}

// openStream posts a request with a prompt of some words and reads its reply.
func openStream(url string, words, tokens int) *stream {
	s := &stream{first: make(chan struct{}), done: make(chan struct{})}
	go func() {
		defer close(s.done)
		s.err = s.read(url, words, tokens)
	}()
	return s
}

var finishReason = regexp.MustCompile(`"finish_reason":"(\w+)"`)

func (s *stream) read(url string, words, tokens int) error {
	body, err := json.Marshal(map[string]any{
		"model": modelName, "stream": true, "temperature": 0, "max_tokens": tokens, "ignore_eos": true,
		"prompt": "Count." + strings.Repeat(" word", words),
	})
	if err != nil {
		return err
	}
	r, err := http.Post(url+"/v1/completions", "application/json", bytes.NewReader(body))
	if err != nil {
		return err
	}
	defer r.Body.Close()
	lines := bufio.NewScanner(r.Body)
	if r.StatusCode != http.StatusOK {
		lines.Scan()
		s.error = fmt.Sprintf("%d %s", r.StatusCode, lines.Text())
		return nil
	}
	for lines.Scan() {
		data, ok := strings.CutPrefix(lines.Text(), "data: ")
		switch {
		case !ok:
		case data == "[DONE]":
		case strings.HasPrefix(data, `{"error"`):
			s.error = data
		default:
			if s.text++; s.text == 1 {
				close(s.first)
			}
			if m := finishReason.FindStringSubmatch(data); m != nil {
				s.finish = m[1]
			}
		}
	}
	return lines.Err()
}

// saw says in words how the stream ended.
func (s *stream) saw() string {
	<-s.done
	switch {
	case s.error != "" && s.text == 0:
		return "error"
	case s.error != "":
		return "error event"
	case s.finish == "length":
		return "whole reply"
	case s.finish != "":
		return "finish_reason " + s.finish
	}
	return "end of connection"
}

// kill is a row of the table of kills.
type kill struct {
	who    string
	signal syscall.Signal
	moment string
}

func (k kill) String() string {
	return fmt.Sprintf("%s %v %s", k.who, map[syscall.Signal]string{syscall.SIGKILL: "SIGKILL", syscall.SIGSTOP: "SIGSTOP"}[k.signal], k.moment)
}

// killed is what a kill led to.
type killed struct {
	kill
	client, health, code string
	gone                 time.Duration
	left                 []string
}

// long is the prompt that is still read when a test looks, in words.
const long = 5000

// run starts ranks, kills at the moment and returns what was seen.
func (k kill) run(t *testing.T) killed {
	t.Helper()
	r := newRanked(t, twoStages)
	r.start(t, vapp(t), "up", r.profile())
	r.awaitURL(t)
	client := k.reach(t, r)
	at := r.signal(t, k.who, k.signal)
	health := watchHealth(r.url)
	out := killed{kill: k, client: "-"}
	out.gone = r.gone(t, at)
	if client != nil {
		out.client = client.saw()
		t.Logf("%v: the client: %d events, error %q, connection %v", k, client.text, client.error, client.err)
	}
	out.code, out.health, out.left = r.code(), health(), r.left()
	t.Logf("%v: the log:\n%s", k, r.log())
	return out
}

// reach brings a server to the moment and returns the stream that runs then; nil for load.
func (k kill) reach(t *testing.T, r *ranked) *stream {
	t.Helper()
	if k.moment == "load" {
		r.awaitLog(t, "all ranks are there")
		return nil
	}
	r.awaitPhase(t, "ready")
	if k.moment == "prefill" {
		s := openStream(r.url, long, 16)
		r.await(t, "the prompt is read", func() bool { return metric(t, r.url, "vllm:num_requests_running") > 0 })
		return s
	}
	s := openStream(r.url, 1, 4000)
	select {
	case <-s.first:
	case <-s.done:
		t.Fatalf("no token: %s, %v", s.error, s.err)
	}
	if k.moment == "drain" {
		r.signal(t, "supervisor", syscall.SIGTERM)
		r.awaitPhase(t, "draining")
	}
	return s
}

// watchHealth polls /health; the function that it returns stops that and lists the different answers in their order.
func watchHealth(url string) func() string {
	stop := make(chan struct{})
	var seen []string
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			if s := status(url, "/health"); !slices.Contains(seen, s) {
				seen = append(seen, s)
			}
			select {
			case <-stop:
				return
			case <-time.After(5 * time.Millisecond):
			}
		}
	})
	return func() string {
		close(stop)
		wg.Wait()
		return strings.Join(seen, ", ")
	}
}

// check fails the test where a kill has left something or ended too late or well.
func (k killed) check(t *testing.T) {
	t.Helper()
	switch {
	case k.code == "0":
		t.Errorf("%v: exit code 0", k.kill)
	case k.gone > goneIn:
		t.Errorf("%v: everything was gone after %v", k.kill, k.gone)
	case len(k.left) > 0:
		t.Errorf("%v: left: %v", k.kill, k.left)
	case k.client == "whole reply":
		t.Errorf("%v: the client got a whole reply", k.kill)
	}
	if k.who == "rank 1" && k.moment != "load" {
		if !strings.HasPrefix(k.client, "error") {
			t.Errorf("%v: the client saw: %s", k.kill, k.client)
		}
	}
}

// report prints the table of kills.
func report(t *testing.T, rows []killed) {
	var b strings.Builder
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "who\tsignal\tat\tclient\t/health\texit code\tall gone after\tleft")
	for _, k := range rows {
		left := "nothing"
		if len(k.left) > 0 {
			left = strings.Join(k.left, " ")
		}
		name := map[syscall.Signal]string{syscall.SIGKILL: "SIGKILL", syscall.SIGSTOP: "SIGSTOP"}[k.signal]
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\t%.1f s\t%s\n", k.who, name, k.moment, k.client, k.health, k.code, k.gone.Seconds(), left)
	}
	_ = w.Flush()
	t.Logf("kills of two ranks:\n%s", &b)
}

// TestRanksKilled kills a process of two ranks while a client reads a stream: the stream ends with an error, the exit code is not 0,
// and after ten seconds there is no process, no port and no file of the group. The soak has the whole table.
func TestRanksKilled(t *testing.T) {
	runKills(t, []kill{
		{"rank 1", syscall.SIGKILL, "decode"},
		{"rank 1", syscall.SIGSTOP, "decode"},
		{"rank 0", syscall.SIGKILL, "decode"},
		{"supervisor", syscall.SIGKILL, "decode"},
	})
}

func runKills(t *testing.T, kills []kill) {
	var rows []killed
	for _, k := range kills {
		t.Run(k.String(), func(t *testing.T) {
			row := k.run(t)
			row.check(t)
			rows = append(rows, row)
		})
	}
	report(t, rows)
}
