// Package offline measures an engine in this process, without a server: the latency of one batch
// and the throughput of a workload, as vLLM's `bench latency` and `bench throughput` do. It must
// not use HTTP or plan a profile; the caller opens the engine. Start reading at Bench.Latency.
package offline

import (
	"context"
	"fmt"
	"time"

	"vapp.dev/engine"
	"vapp.dev/engine/sample"
	"vapp.dev/engine/tokenizer"
	"vapp.dev/tools/bench/report"
	"vapp.dev/tools/bench/workload"
)

// Bench is an engine under measurement.
type Bench struct {
	Engine *engine.Engine
	// Text detokenizes the generated tokens within the measured time; nil: not detokenized.
	Text *tokenizer.Tokenizer
	// N is the number of answers for each prompt.
	N int
	// Progress receives the number of finished requests; may be nil.
	Progress func(done, of int)
}

// Batch describes the batches of Latency.
type Batch struct {
	// Size is the number of prompts of Input tokens, each with Output generated tokens.
	Size, Input, Output int
	// Warmups are iterations before the measured ones.
	Warmups, Iterations int
	Seed                int64
}

// Latency measures the time of a batch. Prompts are random tokens that differ between iterations,
// so that no prefix cache helps. With an error it returns the finished iterations.
func (b Bench) Latency(ctx context.Context, o Batch, v workload.Vocabulary) (report.Latency, error) {
	out := report.Latency{Asked: o.Iterations}
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

// Throughput measures the time of all requests, submitted at once. With an error it returns what
// was finished.
func (b Bench) Throughput(ctx context.Context, requests []workload.Request) (report.Throughput, error) {
	start := time.Now()
	out, err := b.answer(ctx, requests, 0, b.Progress)
	out.Seconds, out.Asked = time.Since(start).Seconds(), len(requests)
	return out, err
}

// answer submits the requests and waits for all; each receives the number of finished ones. It
// returns the sums over the requests that finished with all N answers.
func (b Bench) answer(ctx context.Context, requests []workload.Request, round int, each func(done, of int)) (report.Throughput, error) {
	var sum report.Throughput
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	type ended struct {
		request, tokens int
		err             error
	}
	left, tokens := make([]int, len(requests)), make([]int, len(requests))
	ends := make(chan ended, len(requests)*b.N)
	for i, q := range requests {
		streams, err := b.submit(ctx, q, fmt.Sprintf("bench-%d-%d", round, i))
		if err != nil {
			return sum, fmt.Errorf("prompt %d of %d tokens, %d asked for: %w", i+1, len(q.IDs), q.Output, err)
		}
		left[i] = len(streams)
		for _, s := range streams {
			go func() {
				n, err := b.follow(ctx, s)
				ends <- ended{i, n, err}
			}()
		}
	}
	for range cap(ends) {
		e := <-ends
		if e.err != nil {
			return sum, e.err
		}
		i := e.request
		tokens[i] += e.tokens
		if left[i]--; left[i] > 0 {
			continue
		}
		sum.Requests, sum.Input, sum.Output = sum.Requests+1, sum.Input+len(requests[i].IDs), sum.Output+tokens[i]
		if each != nil {
			each(sum.Requests, len(requests))
		}
	}
	return sum, nil
}

func (b Bench) submit(ctx context.Context, q workload.Request, id string) ([]*engine.Stream, error) {
	p := sample.Default()
	p.MaxTokens, p.IgnoreEOS = q.Output, true
	return b.Engine.Submit(ctx, engine.Request{ID: id, Prompt: q.IDs, Params: p, N: b.N})
}

// follow reads a stream to its end; when ctx ends it cancels the stream.
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
