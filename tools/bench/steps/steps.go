// Package steps measures how long the steps of an engine take by what they compute, and keeps the fitted cost model in
// a file. It must not plan a profile or simulate: the caller opens the engine with the Recorder's hook, and package
// replicas uses the file. Start reading at Measure.
package steps

import (
	"context"
	"fmt"
	"sync"

	"vapp.dev/engine"
	"vapp.dev/engine/sample"
	"vapp.dev/engine/speed"
)

// Recorder keeps the steps that an engine reports.
type Recorder struct {
	mu      sync.Mutex
	samples []speed.Sample
}

// Step is for engine.Hooks.Step. Steps that moved pages to or from swap space are left out.
func (r *Recorder) Step(s engine.StepStats) {
	if s.Work.Decode+s.Work.Prompt == 0 || s.Took <= 0 || s.Preempted+s.SwappedIn > 0 {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.samples = append(r.samples, speed.Sample{
		Decode: s.Work.Decode, Prompt: s.Work.Prompt, Reads: s.Work.Reads, PromptReads: s.Work.PromptReads, Seconds: s.Took.Seconds(),
	})
}

// Samples returns the steps so far.
func (r *Recorder) Samples() []speed.Sample {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]speed.Sample(nil), r.samples...)
}

// Limits are those of the engine that decide which steps it can run.
type Limits struct {
	BatchedTokens, Seqs, ModelLen int
	KVTokens                      int64 // that the KV cache holds
}

// load is some equal requests, submitted at once, and others that follow one after the other while they run.
type load struct {
	streams, prompt, output int
	then                    []int // prompts of the requests that follow, each with 2 tokens of output
}

// most is how many prompt tokens a load has at most, so that a round takes seconds on a CPU.
const most = 2048

// loads returns what a round runs: prompts alone from 16 tokens to the largest step, long ones in chunks, 1 to Seqs
// streams that decode with short and long contexts, and streams beside prompts.
func (l Limits) loads() []load {
	var out []load
	longest := min(l.ModelLen-2, most, int(min(l.KVTokens, most))-2)
	for n := 16; n < min(l.BatchedTokens, longest); n *= 2 {
		out = append(out, load{streams: 1, prompt: n, output: 1})
	}
	out = append(out, load{streams: 1, prompt: max(1, min(l.BatchedTokens, longest)), output: 1})
	if longest > l.BatchedTokens {
		out = append(out, load{streams: 1, prompt: min(longest, 4*l.BatchedTokens), output: 1})
	}
	const output = 24
	for s := 1; ; s = min(2*s, l.Seqs) {
		for _, p := range []int{16, 1024} {
			if p = min(p, longest-output, most/s, int(l.KVTokens)/s-output-16); p >= 1 {
				out = append(out, load{streams: s, prompt: p, output: output})
			}
		}
		if p := min(512, longest-4); s > 1 && s <= 32 && p >= 64 && s < l.Seqs && int64(s*(16+4*output)+p) < l.KVTokens {
			out = append(out, load{streams: s, prompt: 16, output: 4 * output, then: []int{32, p / 4, 64, p}})
		}
		if s == l.Seqs {
			return out
		}
	}
}

// Measure runs the loads rounds times on an idle engine whose steps r records, and returns the fitted model and the
// number of steps. The first load runs once before, and does not count. vocab is the number of ids of the model. progress may be nil.
func Measure(ctx context.Context, e *engine.Engine, r *Recorder, l Limits, vocab, rounds int, progress func(done, of int)) (*speed.Steps, int, error) {
	loads := l.loads()
	seed := uint64(0)
	if err := loads[0].run(ctx, e, vocab, &seed); err != nil {
		return nil, 0, err
	}
	warm := len(r.Samples())
	for round := range rounds {
		for i, w := range loads {
			if err := w.run(ctx, e, vocab, &seed); err != nil {
				return nil, 0, fmt.Errorf("bench steps: %d requests of %d + %d tokens: %w", w.streams, w.prompt, w.output, err)
			}
			if progress != nil {
				progress(round*len(loads)+i+1, rounds*len(loads))
			}
		}
	}
	samples := r.Samples()[warm:]
	m, err := speed.Fit(samples)
	return m, len(samples), err
}

// run submits the requests and reads them to their end.
func (w load) run(ctx context.Context, e *engine.Engine, vocab int, seed *uint64) error {
	var streams []*engine.Stream
	submit := func(prompt, output int) (*engine.Stream, error) {
		p := sample.Default()
		p.Temperature, p.MaxTokens, p.IgnoreEOS = 0, output, true
		*seed++
		s, err := e.Submit(ctx, engine.Request{ID: fmt.Sprint("steps-", *seed), Prompt: tokens(prompt, vocab, *seed), Params: p})
		if err != nil {
			return nil, err
		}
		return s[0], nil
	}
	for range w.streams {
		s, err := submit(w.prompt, w.output)
		if err != nil {
			return err
		}
		streams = append(streams, s)
	}
	for _, n := range w.then {
		s, err := submit(n, 2)
		if err != nil {
			return err
		}
		if err := drain(ctx, s); err != nil {
			return err
		}
	}
	for _, s := range streams {
		if err := drain(ctx, s); err != nil {
			return err
		}
	}
	return nil
}

// drain reads a stream to its end.
func drain(ctx context.Context, s *engine.Stream) error {
	for {
		events, err := s.Next(ctx)
		if err != nil {
			s.Cancel()
			return err
		}
		if len(events) == 0 {
			return nil
		}
		for _, ev := range events {
			if ev.Err != nil {
				return ev.Err
			}
		}
	}
}

// tokens returns n tokens; those of different seeds share no prefix.
func tokens(n, vocab int, seed uint64) []int32 {
	out := make([]int32, n)
	for i := range out {
		out[i] = int32((seed*2654435761 + uint64(i)*40503) % uint64(vocab))
	}
	return out
}
