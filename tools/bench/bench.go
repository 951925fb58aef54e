// Package bench measures servers that implement OpenAI's API: it sends a workload and records each
// answer for tools/bench/report. Options and figures are those of vLLM's `bench serve`. It must not
// start a server or an engine. Start reading at Run.Serve.
package bench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"runtime"
	"sync"
	"time"

	"vapp.dev/tools/bench/report"
	"vapp.dev/tools/bench/workload"
)

// Run is one benchmark of a server.
type Run struct {
	Server   *Server
	Params   RequestParams
	Requests []workload.Request
	Arrivals workload.Arrivals
	Seed     int64
	// MaxConcurrency bounds the concurrent requests; 0: no bound.
	MaxConcurrency int
	// Warmups are requests sent before the clock starts, in addition to the probe.
	Warmups int
	// ReadyTimeout is the time for which the probe is repeated; 0: it is sent once.
	ReadyTimeout time.Duration
	// Timeout bounds each request.
	Timeout time.Duration
	// Tokenizer counts generated tokens where the server does not; may be nil.
	Tokenizer workload.Tokenizer
	// KeepText keeps the generated text.
	KeepText bool
	// Profile runs vLLM's profiler on the server during the run.
	Profile bool
	Setup   report.Setup
	// Log receives the lines above the table.
	Log io.Writer
	// Progress receives the number of finished requests: each number once and in order, from
	// several goroutines. May be nil.
	Progress func(done, of int)
}

// Serve runs the benchmark. When ctx ends it cancels the requests in flight, and returns the
// dropUnsent ones with ctx's error.
func (r *Run) Serve(ctx context.Context) (report.Result, error) {
	if len(r.Requests) == 0 {
		return report.Result{}, errors.New("bench: no request to send")
	}
	sends, err := r.prepare()
	if err != nil {
		return report.Result{}, err
	}
	if err := r.before(ctx, sends); err != nil {
		return report.Result{}, err
	}
	if r.Profile {
		fmt.Fprintln(r.Log, "Starting profiler...")
		if err := r.Server.profiler(ctx, "start"); err != nil {
			return report.Result{}, err
		}
		fmt.Fprintln(r.Log, "Profiler started")
	}
	before := r.Server.speculation(ctx)
	used := processTime()
	traces, seconds := r.send(ctx, sends)
	used = processTime() - used
	then := context.WithoutCancel(ctx)
	if ctx.Err() != nil { // return the finished requests without delay
		var stop context.CancelFunc
		then, stop = context.WithTimeout(then, asking)
		defer stop()
	}
	after := r.Server.speculation(then)
	if r.Profile {
		r.stopProfiler(then)
	}
	r.count(then, traces)
	out := report.Make(r.Setup, traces, seconds, increase(before, after))
	out.Client = report.Client{CPU: used.Seconds(), Cores: runtime.GOMAXPROCS(0)}
	if len(traces) == len(sends) {
		return out, nil // errors after the end of the run are ignored
	}
	out.Partial = true
	return out, ctx.Err()
}

// stopProfiler stops the profiler. It only logs a failure, because the figures are complete.
func (r *Run) stopProfiler(ctx context.Context) {
	fmt.Fprintln(r.Log, "Stopping profiler...")
	if err := r.Server.profiler(ctx, "stop"); err != nil {
		fmt.Fprintln(r.Log, err)
		return
	}
	fmt.Fprintln(r.Log, "Profiler stopped")
}

// prepare builds every body before the clock starts.
func (r *Run) prepare() ([]send, error) {
	sends := make([]send, len(r.Requests))
	errs := make([]error, len(sends))
	var making sync.WaitGroup
	threads := runtime.GOMAXPROCS(0) // images take tens of milliseconds each
	for first := range min(threads, len(sends)) {
		making.Go(func() {
			for i := first; i < len(sends); i += threads {
				q := r.Requests[i]
				body, err := r.Params.body(q)
				errs[i] = err
				sends[i] = send{
					server: r.Server, params: &r.Params, body: body, id: fmt.Sprint(r.Params.IDPrefix, i),
					input: q.Tokens, output: q.Output,
				}
			}
		})
	}
	making.Wait()
	return sends, errors.Join(errs...)
}

// before sends the probe, which has the first prompt, and the warm-up requests.
func (r *Run) before(ctx context.Context, sends []send) error {
	fmt.Fprintln(r.Log, "Starting initial single prompt test run...")
	if err := r.probe(ctx, sends[0]); err != nil {
		return err
	}
	if r.Warmups > 0 {
		fmt.Fprintf(r.Log, "Warming up with %d requests...\n", r.Warmups)
		warm := *r
		warm.Progress = nil
		bodies := make([]send, r.Warmups)
		for i := range bodies {
			bodies[i] = sends[0]
			bodies[i].id = fmt.Sprint(r.Params.IDPrefix, "warmup-", i)
		}
		warm.Arrivals = workload.Arrivals{Rate: math.Inf(1), Burstiness: 1}
		traces, _ := warm.send(ctx, bodies)
		for _, t := range traces {
			if t.Failure != nil && ctx.Err() == nil {
				return fmt.Errorf("bench: a warm-up request failed: %w", t.Failure)
			}
		}
		fmt.Fprintln(r.Log, "Warmup run completed.")
	}
	fmt.Fprintln(r.Log, "Initial test run completed. Starting main benchmark run...")
	r.announce()
	return ctx.Err()
}

// probeEvery is the pause between probes of a server that is not ready.
const probeEvery = time.Second

// refusals are permanent error codes, with a remedy where the server's message has none.
var refusals = map[string]string{
	"HTTP 400": "", "HTTP 413": "", "HTTP 422": "",
	"HTTP 401": "; give the key in OPENAI_API_KEY, or --header", "HTTP 403": "; give the key in OPENAI_API_KEY, or --header",
	"HTTP 405": "; check --backend and --endpoint", "HTTP 501": "; check --backend and --endpoint",
}

// probe sends one request, repeatedly until the server is ready.
func (r *Run) probe(ctx context.Context, s send) error {
	until := time.Now().Add(r.ReadyTimeout)
	s.id = r.Params.IDPrefix + "test"
	for {
		t := r.one(ctx, s, time.Now())
		if t.Failure == nil {
			return nil
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if hint, final := refusals[t.Failure.Reason]; final {
			return fmt.Errorf("bench: the initial test run failed: %w%s", t.Failure, hint)
		}
		if !time.Now().Add(probeEvery).Before(until) {
			return fmt.Errorf("bench: the initial test run failed: %w; check --base-url, --endpoint, --model and that the server is ready (--ready-check-timeout-sec waits for it)", t.Failure)
		}
		select {
		case <-ctx.Done():
		case <-time.After(probeEvery):
		}
	}
}

// announce logs the traffic of the run.
func (r *Run) announce() {
	a := r.Arrivals
	if a.RampUp != "" {
		fmt.Fprintf(r.Log, "Traffic ramp-up strategy: %s.\nWill increase RPS from %v to %v RPS over the duration of the benchmark.\n",
			a.RampUp, a.Start, a.End)
	} else {
		fmt.Fprintf(r.Log, "Traffic request rate: %s\n", report.RateText(a.Rate))
	}
	process, bound := "Gamma distribution", "None"
	if a.Burstiness == 1 {
		process = "Poisson process"
	}
	if r.MaxConcurrency > 0 {
		bound = fmt.Sprint(r.MaxConcurrency)
	}
	fmt.Fprintf(r.Log, "Burstiness factor: %s (%s)\nMaximum request concurrency: %s\n", report.RateText(a.Burstiness), process, bound)
}

// send sends every request at its time. It returns the traces of those sent, and the seconds from
// the first send until all were done.
func (r *Run) send(ctx context.Context, sends []send) ([]report.Trace, float64) {
	var slots chan struct{}
	if r.MaxConcurrency > 0 {
		slots = make(chan struct{}, r.MaxConcurrency)
	}
	traces, sent := make([]report.Trace, len(sends)), make([]bool, len(sends))
	var wg sync.WaitGroup
	var reporting sync.Mutex
	done := 0
	begin := time.Now()
	for i, at := range r.Arrivals.Times(len(sends), r.Seed) {
		if !sleep(ctx, time.Until(begin.Add(seconds(at)))) {
			break
		}
		wg.Go(func() {
			if slots != nil {
				select {
				case slots <- struct{}{}:
					defer func() { <-slots }()
				case <-ctx.Done():
					return
				}
			}
			t := r.one(ctx, sends[i], begin)
			if t.Failure != nil && ctx.Err() != nil {
				return // canceled by the client: not a failure of the server
			}
			traces[i], sent[i] = t, true
			reporting.Lock()
			defer reporting.Unlock()
			if done++; r.Progress != nil {
				r.Progress(done, len(sends))
			}
		})
	}
	wg.Wait()
	return dropUnsent(traces, sent, time.Since(begin).Seconds())
}

// dropUnsent removes requests that were not sent or were canceled, and shifts times so that the first
// send is at 0.
func dropUnsent(traces []report.Trace, sent []bool, end float64) ([]report.Trace, float64) {
	first, n := end, 0
	for i, t := range traces {
		if sent[i] {
			first = min(first, t.Start)
			traces[n], n = t, n+1
		}
	}
	return traces[:n], end - first
}

// one sends a request, within its timeout.
func (r *Run) one(ctx context.Context, s send, begin time.Time) report.Trace {
	if r.Timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, r.Timeout, errTimeout)
		defer cancel()
	}
	return s.do(ctx, begin)
}

func seconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }

// sleep waits for d; it returns false if ctx ended before.
func sleep(ctx context.Context, d time.Duration) bool {
	if d <= 0 {
		return ctx.Err() == nil
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// count tokenizes the texts whose token count the server did not report.
func (r *Run) count(ctx context.Context, traces []report.Trace) {
	for i := range traces {
		t := &traces[i]
		if t.Failure == nil && t.Output == unknown {
			r.retokenize(ctx, t)
		}
		if !r.KeepText {
			t.Text = ""
		}
	}
}

func (r *Run) retokenize(ctx context.Context, t *report.Trace) {
	t.Output = 0
	if r.Tokenizer == nil {
		t.Failure = &report.Failure{Reason: "no usage", Detail: "the server does not say how many tokens it generated; give --tokenizer to count them"}
		return
	}
	ids, err := r.Tokenizer.Encode(ctx, t.Text)
	if err != nil {
		t.Failure = &report.Failure{Reason: "no usage", Detail: err.Error()}
		return
	}
	t.Output, t.Counted = len(ids), true
}

// Client returns the HTTP client of a benchmark. It keeps a connection for each concurrent request
// and does not compress. It follows a redirect only where the same request goes to the same host;
// any other redirect is the answer.
func Client(insecure bool) *http.Client {
	return &http.Client{
		Transport: transport(insecure),
		CheckRedirect: func(q *http.Request, via []*http.Request) error {
			if first := via[0]; len(via) >= maxRedirects || q.Method != first.Method || q.URL.Host != first.URL.Host {
				return http.ErrUseLastResponse
			}
			return nil
		},
	}
}

const maxRedirects = 5
