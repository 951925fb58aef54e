package bench

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"vapp.dev/tools/bench/workload"
)

// TestBadServers checks that every kind of bad answer counts as failed, with its reason, and is in
// no average. The first two requests (the probe and one more) succeed.
func TestBadServers(t *testing.T) {
	for _, c := range []struct {
		name, reason string
		answer       http.HandlerFunc
	}{
		{"status", "HTTP 503: the queue is full", func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(503)
			io.WriteString(w, `{"error":{"message":"the queue is full"}}`)
		}},
		{"a terminal's escapes", "HTTP 502: bad \uFFFD[2J\uFFFDgateway \uFFFD", func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(502)
			io.WriteString(w, "bad\n\x1b[2J\u202egateway\r\n\xff")
		}},
		{"status without JSON", "HTTP 502: bad gateway", func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(502)
			io.WriteString(w, "bad\ngateway")
		}},
		{"a redirection that makes a GET of it", "HTTP 302: it redirects to /elsewhere; give the right address as --base-url", func(w http.ResponseWriter, q *http.Request) {
			http.Redirect(w, q, "/elsewhere", http.StatusFound)
		}},
		{"a redirection to somebody else", "HTTP 307: it redirects to http://127.0.0.1:1/v1/completions; give the right address as --base-url", func(w http.ResponseWriter, q *http.Request) {
			http.Redirect(w, q, "http://127.0.0.1:1/v1/completions", http.StatusTemporaryRedirect)
		}},
		{"redirections without end", "HTTP 307: it redirects to /v1/completions; ", func(w http.ResponseWriter, q *http.Request) {
			http.Redirect(w, q, "/v1/completions", http.StatusTemporaryRedirect)
		}},
		{"error in the stream", "error in the stream: out of pages", func(w http.ResponseWriter, _ *http.Request) {
			io.WriteString(w, record("a")+"data: {\"error\":{\"message\":\"out of pages\"}}\n\n"+done)
		}},
		{"broken record", "broken SSE record: ", func(w http.ResponseWriter, _ *http.Request) {
			io.WriteString(w, record("a")+"data: {\"choices\":[\n\n"+done)
		}},
		{"no stream at all", "no token: ", func(w http.ResponseWriter, _ *http.Request) {
			io.WriteString(w, `{"choices":[{"text":"a"}]}`)
		}},
		{"nothing", "no token: ", func(http.ResponseWriter, *http.Request) {}},
		{"a page", "no token: the answer is no event stream; check --backend and --endpoint: text/html; charset=utf-8: <html>Welcome", func(w http.ResponseWriter, _ *http.Request) {
			io.WriteString(w, "<html>Welcome</html>\n")
		}},
		{"an error without a status", "no token: the answer is no event stream; check --backend and --endpoint: application/json: out of pages", func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			io.WriteString(w, "{\n  \"error\": {\n    \"message\": \"out of pages\"\n  }\n}\n")
		}},
		{"compressed", "no token: the answer is no event stream; check --backend and --endpoint: text/event-stream, encoded as gzip: ", func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "text/event-stream")
			w.Header().Set("Content-Encoding", "gzip")
			io.WriteString(w, "\x1f\x8b\x08\x00:")
		}},
		{"an error of older servers", "error in the stream: out of pages", func(w http.ResponseWriter, _ *http.Request) {
			io.WriteString(w, record("a")+"data: {\"object\":\"error\",\"message\":\"out of pages\",\"code\":500}\n\n"+done)
		}},
		{"an event that is an error", `error in the stream: {"message":"out of pages"}`, func(w http.ResponseWriter, _ *http.Request) {
			io.WriteString(w, record("a")+"event: error\ndata: {\"message\":\"out of pages\"}\n\n"+done)
		}},
		{"llama-server's field", "error in the stream: out of pages", func(w http.ResponseWriter, _ *http.Request) {
			io.WriteString(w, record("a")+"error: {\"error\":{\"message\":\"out of pages\"}}\n\n"+done)
		}},
		{"given up by the server", "error in the stream: finish_reason abort", func(w http.ResponseWriter, _ *http.Request) {
			io.WriteString(w, record("a")+strings.Replace(record("b"), `null`, `"abort"`, 1)+usage3+done)
		}},
		{"closed early, in good order", "closed early: the stream ended without", func(w http.ResponseWriter, _ *http.Request) {
			io.WriteString(w, record("a"))
		}},
		{"closed early, torn off", "closed early: the connection ended", func(w http.ResponseWriter, _ *http.Request) {
			io.WriteString(w, record("a"))
			w.(http.Flusher).Flush()
			panic(http.ErrAbortHandler)
		}},
		{"closed at once", "connection closed: ", func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }},
		{"more tokens than asked for", "impossible usage: 9 tokens generated, 3 were asked for", func(w http.ResponseWriter, _ *http.Request) {
			io.WriteString(w, record("a")+strings.ReplaceAll(usage3, `_tokens":3`, `_tokens":9`)+done)
		}},
		{"fewer than none", "impossible usage: ", func(w http.ResponseWriter, _ *http.Request) {
			io.WriteString(w, record("a")+strings.ReplaceAll(usage3, `_tokens":3`, `_tokens":-3`)+done)
		}},
		{"no end", "endless stream: ", func(w http.ResponseWriter, r *http.Request) {
			for r.Context().Err() == nil {
				if _, err := io.WriteString(w, record("a")); err != nil {
					return
				}
			}
		}},
		{"a record without end", "broken SSE record: a record of more than", func(w http.ResponseWriter, r *http.Request) {
			io.WriteString(w, "data: ")
			for r.Context().Err() == nil {
				if _, err := w.Write(make([]byte, 64<<10)); err != nil {
					return
				}
			}
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			var n atomic.Int64
			r := serving(t, 3, func(w http.ResponseWriter, q *http.Request) {
				io.Copy(io.Discard, q.Body)
				if n.Add(1) <= 2 {
					io.WriteString(w, record("a")+record("b")+record("c")+usage3+done)
					return
				}
				c.answer(w, q)
			}).withOutput(3)
			r.MaxConcurrency = 1
			got, err := r.Serve(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if got.Completed != 1 || got.Failed != 2 || got.Output != 3 || got.Input != 4 {
				t.Fatalf("%d completed, %d failed, %d in, %d out", got.Completed, got.Failed, got.Input, got.Output)
			}
			for _, x := range got.Traces {
				if x.Failure != nil && !strings.HasPrefix(x.Failure.Error(), c.reason) {
					t.Errorf("%q, want %q", x.Failure.Error(), c.reason)
				}
			}
		})
	}
}

// TestNoUsage checks that the tokenizer counts generated tokens where the server sends no usage.
func TestNoUsage(t *testing.T) {
	r := serving(t, 1, func(w http.ResponseWriter, _ *http.Request) {
		io.WriteString(w, record("one two")+record(" three four five")+done)
	}).withOutput(9)
	got, err := r.Serve(t.Context())
	if err != nil || got.Completed != 1 || got.Output != 5 {
		t.Fatalf("%d completed, %d tokens, %v", got.Completed, got.Output, err)
	}
	if got := got.Uncounted(); got != "No usage came with 1 of 1 successful requests: the tokenizer counted what they generated.\n" {
		t.Errorf("%q", got)
	}
	r.Tokenizer = nil
	if got, err = r.Serve(t.Context()); err != nil || got.Failed != 1 || got.Traces[0].Failure.Reason != "no usage" {
		t.Fatalf("%+v, %v", got.Traces, err)
	}
}

// TestNoCount checks that a usage of 0 tokens, sent with chunks, is ignored.
func TestNoCount(t *testing.T) {
	r := serving(t, 1, func(w http.ResponseWriter, _ *http.Request) {
		io.WriteString(w, record("one two")+record(" three")+strings.ReplaceAll(usage3, `completion_tokens":3`, `completion_tokens":0`)+done)
	}).withOutput(9)
	if got, err := r.Serve(t.Context()); err != nil || got.Completed != 1 || got.Output != 3 {
		t.Fatalf("%d completed, %d tokens, %v", got.Completed, got.Output, err)
	}
}

// TestAfterDone checks that an answer ends with [DONE], whatever the server sends after it, and
// before the request timeout.
func TestAfterDone(t *testing.T) {
	for name, then := range map[string]func(w http.ResponseWriter, q *http.Request){
		"silence": func(_ http.ResponseWriter, q *http.Request) { <-q.Context().Done() },
		"records without end": func(w http.ResponseWriter, q *http.Request) {
			for q.Context().Err() == nil {
				if _, err := io.WriteString(w, record("x")); err != nil {
					return
				}
			}
		},
		"a record without end": func(w http.ResponseWriter, q *http.Request) {
			for q.Context().Err() == nil {
				if _, err := w.Write(make([]byte, 64<<10)); err != nil {
					return
				}
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := serving(t, 1, func(w http.ResponseWriter, q *http.Request) {
				io.Copy(io.Discard, q.Body)
				io.WriteString(w, record("a")+record("b")+record("c")+usage3+done)
				w.(http.Flusher).Flush()
				then(w, q)
			}).withOutput(3)
			r.Timeout = time.Hour
			got, err := r.Serve(t.Context())
			if err != nil || got.Completed != 1 || got.Output != 3 || len(got.Traces[0].ITL) != 2 {
				t.Fatalf("%d completed, %d tokens, %v: %s", got.Completed, got.Output, err, got.Failures())
			}
		})
	}
}

// TestSlowServer checks that a request that exceeds its timeout counts as failed.
func TestSlowServer(t *testing.T) {
	var n atomic.Int64
	r := serving(t, 2, func(w http.ResponseWriter, q *http.Request) {
		io.Copy(io.Discard, q.Body)
		if n.Add(1) == 1 {
			io.WriteString(w, record("a")+usage3+done)
			return
		}
		io.WriteString(w, record("a"))
		w.(http.Flusher).Flush()
		<-q.Context().Done()
	}).withOutput(3)
	r.Timeout = 2 * time.Second
	got, err := r.Serve(t.Context())
	if err != nil || got.Failed != 2 || got.Traces[0].Failure.Reason != "timeout" {
		t.Fatalf("%d failed, %v: %s", got.Failed, err, got.Failures())
	}
}

// TestDeadServer checks the error of a probe without retries.
func TestDeadServer(t *testing.T) {
	r := serving(t, 1, nil).withOutput(3)
	r.Server.BaseURL = "http://127.0.0.1:1"
	_, err := r.Serve(t.Context())
	if err == nil || !strings.Contains(err.Error(), "connection failed: dial: ") || !strings.Contains(err.Error(), "--base-url") {
		t.Fatal(err)
	}
}

// TestReady checks that the probe waits for a server that is not ready yet.
func TestReady(t *testing.T) {
	var n atomic.Int64
	r := serving(t, 1, func(w http.ResponseWriter, q *http.Request) {
		io.Copy(io.Discard, q.Body)
		if n.Add(1) == 1 {
			w.WriteHeader(503)
			return
		}
		io.WriteString(w, record("a")+usage3+done)
	}).withOutput(3)
	r.ReadyTimeout = time.Minute
	if got, err := r.Serve(t.Context()); err != nil || got.Completed != 1 {
		t.Fatalf("%d completed, %v", got.Completed, err)
	}
}

// TestRefused checks that a permanent refusal is not retried, and that its hint fits the answer.
func TestRefused(t *testing.T) {
	for status, want := range map[int]string{
		400: "HTTP 400: no", 401: "HTTP 401: no; give the key in OPENAI_API_KEY, or --header", 501: "HTTP 501: no; check --backend and --endpoint",
	} {
		r := serving(t, 1, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(status); io.WriteString(w, "no") }).withOutput(3)
		r.ReadyTimeout = time.Hour
		if _, err := r.Serve(t.Context()); err == nil || err.Error() != "bench: the initial test run failed: "+want {
			t.Errorf("%v, want %s", err, want)
		}
	}
}

// TestInterrupted checks that an interrupted run reports its finished requests and cancels the
// others.
func TestInterrupted(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var n atomic.Int64
	r := serving(t, 5, func(w http.ResponseWriter, q *http.Request) {
		io.Copy(io.Discard, q.Body)
		if n.Add(1) <= 3 {
			io.WriteString(w, record("a")+usage3+done)
			return
		}
		cancel()
		<-q.Context().Done()
	}).withOutput(3)
	r.MaxConcurrency = 1
	got, err := r.Serve(ctx)
	if !errors.Is(err, context.Canceled) || got.Completed != 2 || got.Failed != 0 {
		t.Fatalf("%d completed, %d failed, %v", got.Completed, got.Failed, err)
	}
}

// TestMaxConcurrency checks that the number of concurrent requests is bounded.
func TestMaxConcurrency(t *testing.T) {
	var mu sync.Mutex
	under, most := 0, 0
	r := serving(t, 20, func(w http.ResponseWriter, q *http.Request) {
		mu.Lock()
		under++
		most = max(most, under)
		mu.Unlock()
		io.Copy(io.Discard, q.Body)
		mu.Lock() // before answering: the client may send the next request on the last byte
		under--
		mu.Unlock()
		io.WriteString(w, record("a")+usage3+done)
	}).withOutput(3)
	r.MaxConcurrency = 3
	if got, err := r.Serve(t.Context()); err != nil || got.Completed != 20 || most > 3 {
		t.Fatalf("%d completed, %d at once, %v", got.Completed, most, err)
	}
}

// TestRequest checks the bodies and headers of requests.
func TestRequest(t *testing.T) {
	for backend, want := range map[Backend]string{
		Completions: `{"model":"m","prompt":"p<0>","repetition_penalty":1,"max_tokens":3,"logprobs":null,"stream":true,"stream_options":{"include_usage":true},"ignore_eos":true,"temperature":0,"user":"u"}`,
		Chat:        `{"model":"m","messages":[{"role":"user","content":[{"type":"text","text":"p<0>"}]}],"max_completion_tokens":3,"stream":true,"stream_options":{"include_usage":true},"ignore_eos":true,"temperature":0,"user":"u"}`,
		Embeddings:  `{"model":"m","input":"p<0>","encoding_format":"float","user":"u"}`,
	} {
		a := RequestParams{Backend: backend, Model: "m", IgnoreEOS: true, Sampling: []Option{{"temperature", 0}}, Extra: extra(t, `{"user":"u"}`)}
		body, err := a.body(workload.Request{Prompt: "p<0>", Output: 3})
		if got := strings.ReplaceAll(string(body), "\n", ""); err != nil || got != want {
			t.Errorf("%s, %v\nwant %s", got, err, want)
		}
	}
	a := RequestParams{Backend: Completions, Model: "m", Extra: extra(t, `{"max_tokens":5}`)}
	if body, err := a.body(workload.Request{Output: 3}); err != nil || strings.Count(string(body), "max_tokens") != 1 || !strings.Contains(string(body), "max_tokens\"\n:5") {
		t.Errorf("%s, %v", body, err)
	}
}

func extra(t *testing.T, text string) (out map[string]json.RawMessage) {
	t.Helper()
	if err := json.Unmarshal([]byte(text), &out); err != nil {
		t.Fatal(err)
	}
	return out
}

// TestHeaders checks that ids, keys and the user's own headers reach the server.
func TestHeaders(t *testing.T) {
	var mu sync.Mutex
	ids := map[string]bool{}
	r := serving(t, 2, func(w http.ResponseWriter, q *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		ids[q.Header.Get("X-Request-Id")] = true
		if q.Header.Get("Authorization") != "Bearer k" || q.Header.Get("X-Team") != "a" || q.Header.Get("Content-Type") != "application/json" {
			t.Errorf("headers %v", q.Header)
		}
		io.WriteString(w, record("a")+usage3+done)
	}).withOutput(3)
	r.Server.Key, r.Server.Header = "k", http.Header{"X-Team": {"a"}}
	if _, err := r.Serve(t.Context()); err != nil {
		t.Fatal(err)
	}
	if !ids["t-test"] || !ids["t-0"] || !ids["t-1"] {
		t.Error(ids)
	}
}

// TestOpenWaits checks that a loading server is asked again for its model and tokenizer, with the
// user's headers, and that the error without retries explains how to wait.
func TestOpenWaits(t *testing.T) {
	var n atomic.Int64
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		switch k := n.Add(1); {
		case q.Header.Get("Authorization") != "Basic x" || q.Header.Get("X-Team") != "a":
			http.Error(w, "who are you", http.StatusUnauthorized)
		case k == 1 || k == 3 || k == 4:
			http.Error(w, `{"error":{"message":"loading"}}`, http.StatusServiceUnavailable)
		case q.URL.Path == "/v1/models":
			io.WriteString(w, `{"data":[{"id":"m","meta":{"n_vocab":4}}]}`)
		case q.URL.Path == "/tokenize":
			io.WriteString(w, `{"tokens":[1,2]}`)
		case q.URL.Path == "/detokenize":
			io.WriteString(w, `{"prompt":"a b"}`)
		default:
			http.NotFound(w, q)
		}
	}))
	defer s.Close()
	o := &Options{
		Backend: "openai", BaseURL: s.URL, NumPrompts: 1, RequestTimeoutSec: 9, Metrics: "ttft", Percentiles: "99", Key: "k",
		Header: []string{"X-Team=a", "Authorization=Basic x"}, Arrivals: workload.Arrivals{Rate: math.Inf(1), Burstiness: 1},
		Dataset: Dataset{Name: "random", Random: workload.Random{Input: 2, Output: 1}},
	}
	if _, err := o.Open(t.Context(), io.Discard); err == nil || !strings.Contains(err.Error(), "/v1/models: HTTP 503: loading; start the server (--ready-check-timeout-sec waits for it)") {
		t.Fatal(err)
	}
	n.Store(0)
	o.ReadyTimeoutSec = 60
	r, err := o.Open(t.Context(), io.Discard)
	if err != nil || r.Params.Model != "m" || r.Requests[0].Prompt != "a b" {
		t.Fatalf("%+v, %v", r, err)
	}
}

// TestProfile checks that the profiler starts before the first counted request and stops after the
// last, and that nothing is measured where it cannot start.
func TestProfile(t *testing.T) {
	var mu sync.Mutex
	var asked []string
	r := serving(t, 2, func(w http.ResponseWriter, q *http.Request) {
		mu.Lock()
		asked = append(asked, q.URL.Path)
		mu.Unlock()
		if q.URL.Path == "/v1/completions" {
			io.WriteString(w, record("a")+usage3+done)
		}
	}).withOutput(3)
	r.Profile = true
	if got, err := r.Serve(t.Context()); err != nil || got.Completed != 2 {
		t.Fatalf("%d completed, %v", got.Completed, err)
	}
	if want := "/v1/completions /start_profile /v1/completions /v1/completions /stop_profile"; strings.Join(asked, " ") != want {
		t.Errorf("asked %v", asked)
	}
	r = serving(t, 2, func(w http.ResponseWriter, q *http.Request) {
		if q.URL.Path != "/v1/completions" {
			http.NotFound(w, q)
			return
		}
		io.WriteString(w, record("a")+usage3+done)
	}).withOutput(3)
	r.Profile = true
	if _, err := r.Serve(t.Context()); err == nil || !strings.Contains(err.Error(), "/start_profile: HTTP 404: ") {
		t.Error(err)
	}
}

// TestNoAnswer checks that a request without an answer times out, and that the error names the
// timeout.
func TestNoAnswer(t *testing.T) {
	r := serving(t, 1, func(_ http.ResponseWriter, q *http.Request) {
		io.Copy(io.Discard, q.Body)
		<-q.Context().Done()
	})
	if _, err := r.Server.askFor(t.Context(), 50*time.Millisecond, "/tokenize", struct{}{}); err == nil || !strings.Contains(err.Error(), "no answer within 50ms") {
		t.Error(err)
	}
}

// TestSpeculation checks the difference of the counters of /metrics before and after a run.
func TestSpeculation(t *testing.T) {
	var n atomic.Int64
	r := serving(t, 1, func(w http.ResponseWriter, q *http.Request) {
		if q.URL.Path != "/metrics" {
			io.WriteString(w, record("a")+usage3+done)
			return
		}
		k := n.Add(1)
		for engine := range 2 {
			fmt.Fprintf(w, "vllm:spec_decode_num_drafts_total{engine=\"%d\"} %d\nvllm:spec_decode_num_draft_tokens_total{engine=\"%d\"} %d\n", engine, 10*k, engine, 20*k)
			fmt.Fprintf(w, "vllm:spec_decode_num_accepted_tokens_total{engine=\"%d\"} %d\n", engine, 12*k)
			fmt.Fprintf(w, "vllm:spec_decode_num_accepted_tokens_per_pos_total{engine=\"%d\",position=\"0\"} %d\n", engine, 8*k)
			fmt.Fprintf(w, "vllm:spec_decode_num_accepted_tokens_per_pos_total{engine=\"%d\",position=\"1\"} %d.0\n", engine, 4*k)
		}
	}).withOutput(3)
	got, err := r.Serve(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if s := got.Speculation; s == nil || s.Drafts != 20 || s.DraftTokens != 40 || s.Accepted != 24 || len(s.Positions) != 2 || s.At(0) != 0.8 || s.At(1) != 0.4 {
		t.Errorf("%+v", got.Speculation)
	}
}
