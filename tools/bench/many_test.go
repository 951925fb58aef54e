package bench

import (
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"vapp.dev/tools/bench/report"
)

// crowd is a server that counts connections and concurrent requests.
type crowd struct {
	*Run
	opened, most atomic.Int64
	now          atomic.Int64
}

// crowded runs n requests against a server whose answers are written by answer.
func crowded(t *testing.T, n int, answer func(w http.ResponseWriter, q *http.Request)) *crowd {
	t.Helper()
	c := &crowd{}
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		io.Copy(io.Discard, q.Body)
		if q.Method == http.MethodGet {
			http.NotFound(w, q)
			return
		}
		now := c.now.Add(1)
		defer c.now.Add(-1)
		for m := c.most.Load(); now > m && !c.most.CompareAndSwap(m, now); m = c.most.Load() {
		}
		answer(w, q)
	}))
	s.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		if state == http.StateNew {
			c.opened.Add(1)
		}
	}
	s.Start()
	t.Cleanup(s.Close)
	c.Run = serving(t, n, nil).withOutput(3)
	c.Server.BaseURL = s.URL
	return c
}

// fitting returns n, reduced to what the open-file limit allows for client and server in one
// process.
func fitting(n int) int { return min(n, (openFiles()-200)/2) }

// TestManyStreams runs a thousand concurrent streams, which send their first token when all have
// begun.
func TestManyStreams(t *testing.T) {
	n := fitting(1000)
	var arrived sync.WaitGroup
	arrived.Add(n)
	c := crowded(t, n, func(w http.ResponseWriter, q *http.Request) {
		if !strings.HasSuffix(q.Header.Get("X-Request-Id"), "test") { // the probe runs alone
			arrived.Done()
			arrived.Wait()
		}
		for _, text := range []string{"a", "b", "c"} {
			io.WriteString(w, record(text))
			w.(http.Flusher).Flush()
		}
		io.WriteString(w, usage3+done)
	})
	got, err := c.Serve(t.Context())
	if err != nil || got.Completed != n || got.Failed != 0 || got.Output != 3*n || got.PeakConcurrent != float64(n) {
		t.Fatalf("%d of %d completed, %v at once, %v\n%s", got.Completed, n, got.PeakConcurrent, err, got.Failures())
	}
	if most, opened := c.most.Load(), c.opened.Load(); int(most) != n || int(opened) > n+1 {
		t.Errorf("%d at once on %d connections", most, opened)
	}
}

// TestManyRequests sends three times as many requests as may run at once, and checks the bound, the
// reuse of connections, and the progress.
func TestManyRequests(t *testing.T) {
	n := fitting(256)
	c := crowded(t, 3*n, func(w http.ResponseWriter, _ *http.Request) {
		io.WriteString(w, record("a"))
		w.(http.Flusher).Flush()
		io.WriteString(w, record("b")+record("c")+usage3+done)
	})
	c.MaxConcurrency = n
	calls := 0
	c.Progress = func(done, _ int) {
		if calls++; done != calls {
			t.Errorf("progress reports %d done, after %d", done, calls-1)
		}
	}
	got, err := c.Serve(t.Context())
	if err != nil || calls != 3*n || got.Completed != 3*n {
		t.Fatalf("%d of %d completed, %v\n%s", got.Completed, 3*n, err, got.Failures())
	}
	// A connection returned slightly late makes the next request open one of its own.
	if most, opened := c.most.Load(), c.opened.Load(); int(most) > n || int(opened) > 2*n {
		t.Errorf("%d at once on %d connections, at most %d may be", most, opened, n)
	}
	if got.Client.CPU < 0 || got.Client.Cores < 1 || got.Partial {
		t.Errorf("%+v", got.Client)
	}
}

// TestPartial checks that an interrupted run is marked as partial, and a complete one is not.
func TestPartial(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	c := crowded(t, 3, func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, record("a")+usage3+done) })
	c.MaxConcurrency = 1
	c.Progress = func(done, _ int) {
		if done == 2 {
			cancel()
		}
	}
	got, err := c.Serve(ctx)
	if err == nil || !got.Partial || got.Completed+got.Failed > 2 {
		t.Fatalf("%+v, %v", got, err)
	}
	got.NumPrompts = 3
	if text := got.Unfinished(); text != "Interrupted: 2 of 3 requests were finished, and the figures are of those alone.\n" {
		t.Error(text)
	}
	if text, err := got.JSON(false); err != nil || !strings.Contains(string(text), `"partial": true`) {
		t.Errorf("%s, %v", text, err)
	}
	ctx, cancel = context.WithCancel(t.Context())
	c.Progress = func(done, of int) {
		if done == of {
			cancel()
		}
	}
	if got, err = c.Serve(ctx); err != nil || got.Partial || got.Unfinished() != "" {
		t.Errorf("interrupted after the last one: %v, %+v", err, got)
	}
}

// TestOpenFiles checks the number of open files that a run needs.
func TestOpenFiles(t *testing.T) {
	o := Options{NumPrompts: 1000}
	o.Arrivals.Rate = 1e9 // finite: the number of concurrent requests is unknown
	if err := o.checkOpenFiles(100); err != nil {
		t.Error(err)
	}
	o.MaxConcurrency = 64
	if err := o.checkOpenFiles(64 + ownFiles); err != nil {
		t.Error(err)
	}
	const want = "64 concurrent requests need a connection each, and this process may open 95 files; raise that (ulimit -n 96), or give --max-concurrency 63"
	if err := o.checkOpenFiles(63 + ownFiles); err == nil || err.Error() != want {
		t.Errorf("%v, want %s", err, want)
	}
}

// TestClientCost checks the line about the client's CPU time, and the warning when it is high.
func TestClientCost(t *testing.T) {
	r := report.Result{Duration: 2, Traces: []report.Trace{{TTFT: 1, ITL: []float64{1, 1, 1}}, {Failure: &report.Failure{}}}}
	if got := r.ClientCost(); got != "" {
		t.Error(got)
	}
	r.Client = report.Client{CPU: 0.5, Cores: 2}
	if got, want := r.ClientCost(), "client: 0.50 s of CPU time, 125000.0 µs a chunk, 25 % of a core\n"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	r.Client.CPU = 1.1
	if got := r.ClientCost(); !strings.HasSuffix(got, "55 % of a core; its own work is in these figures: run it on another machine, or with fewer requests at once\n") {
		t.Error(got)
	}
}
