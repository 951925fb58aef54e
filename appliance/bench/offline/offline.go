// Package offline measures an engine in this process, without a server: the latency of
// one batch and the throughput of a workload, as vLLM's `bench latency` and `bench
// throughput` do.
package offline

import (
	"context"
	"fmt"
	"time"

	"vapp.dev/appliance/bench/report"
	"vapp.dev/appliance/bench/workload"
	"vapp.dev/engine"
	"vapp.dev/engine/sample"
	"vapp.dev/engine/tokenizer"
)

// Bench is an engine that is measured.
type Bench struct {
	Engine *engine.Engine
	// Text detokenizes what is generated, within the time that is measured; nil: nothing does.
	Text *tokenizer.Tokenizer
	// N is how many answers each prompt gets.
	N int
	// Progress is told how much is done; it may be nil.
	Progress func(done, of int)
}

// Batch says what Latency measures.
type Batch struct {
	// Size prompts of Input tokens get Output tokens each.
	Size, Input, Output int
	// Warmups are iterations before those that count.
	Warmups, Iterations int
	Seed                int64
}

// Latency measures how long a batch takes. Its prompts are random tokens, others in
// each iteration, so that no prefix cache helps.
func (b Bench) Latency(ctx context.Context, o Batch, v workload.Vocabulary) (report.Latency, error) {
	var out report.Latency
	for i := range o.Warmups + o.Iterations {
		m := workload.Maker{Count: o.Size, Seed: o.Seed + int64(i)}
		requests := m.Tokens(v, o.Input, o.Output)
		start := time.Now()
		if _, err := b.answer(ctx, requests, i, nil); err != nil {
			return out, err
		}
		if i >= o.Warmups {
			out.Seconds = append(out.Seconds, time.Since(start).Seconds())
		}
		if b.Progress != nil {
			b.Progress(i+1, o.Warmups+o.Iterations)
		}
	}
	return out, nil
}

// Throughput measures how long all requests take that are submitted at once.
func (b Bench) Throughput(ctx context.Context, requests []workload.Request) (report.Throughput, error) {
	out := report.Throughput{Requests: len(requests)}
	for _, q := range requests {
		out.Input += len(q.IDs)
	}
	start := time.Now()
	n, err := b.answer(ctx, requests, 0, b.Progress)
	out.Seconds, out.Output = time.Since(start).Seconds(), n
	return out, err
}

// answer submits the requests and waits for their ends; each is told how many have
// ended. It returns how many tokens were generated.
func (b Bench) answer(ctx context.Context, requests []workload.Request, round int, each func(done, of int)) (int, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	type ended struct {
		tokens int
		err    error
	}
	ends := make(chan ended, len(requests)*b.N)
	for i, q := range requests {
		streams, err := b.submit(ctx, q, fmt.Sprintf("bench-%d-%d", round, i))
		if err != nil {
			return 0, fmt.Errorf("prompt %d of %d tokens, %d asked for: %w", i+1, len(q.IDs), q.Output, err)
		}
		for _, s := range streams {
			go func() {
				n, err := b.follow(ctx, s)
				ends <- ended{n, err}
			}()
		}
	}
	tokens := 0
	for done := range cap(ends) {
		e := <-ends
		if e.err != nil {
			return tokens, e.err
		}
		tokens += e.tokens
		if each != nil && (done+1)%b.N == 0 {
			each((done+1)/b.N, len(requests))
		}
	}
	return tokens, nil
}

func (b Bench) submit(ctx context.Context, q workload.Request, id string) ([]*engine.Stream, error) {
	p := sample.Default()
	p.MaxTokens, p.IgnoreEOS = q.Output, true
	return b.Engine.Submit(ctx, engine.Request{ID: id, Prompt: q.IDs, Params: p, N: b.N})
}

// follow reads a stream to its end; when ctx ends it is cancelled.
func (b Bench) follow(ctx context.Context, s *engine.Stream) (tokens int, err error) {
	var text *tokenizer.Stream
	if b.Text != nil {
		text = b.Text.NewStream(true)
	}
	for {
		events, err := s.Next(ctx)
		if err != nil {
			s.Cancel()
			return tokens, err
		}
		if len(events) == 0 {
			return tokens, nil
		}
		for _, e := range events {
			if e.Err != nil {
				return tokens, e.Err
			}
			if e.Token < 0 {
				continue
			}
			tokens++
			if text != nil {
				text.Push(e.Token)
			}
		}
	}
}
