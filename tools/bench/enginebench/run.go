package enginebench

import (
	"context"
	"fmt"
	"slices"
	"time"

	"vapp.dev/engine"
	"vapp.dev/engine/sample"
)

// measure runs w repeat times.
func (w Work) measure(ctx context.Context, e *engine.Engine, repeat int, vocab int32) (Row, error) {
	row := Row{Work: w}
	for run := range repeat {
		start, tokens, err := w.once(ctx, e, vocab, int32(run))
		if err != nil {
			return Row{}, err
		}
		row.add(start, tokens)
	}
	return row, nil
}

// add appends the rates of a run, computed from the arrival times of each stream's tokens.
func (r *Row) add(start time.Time, tokens [][]time.Time) {
	var first, last time.Time
	for _, t := range tokens {
		first, last = later(first, t[0]), later(last, t[len(t)-1])
	}
	after, all := 0, 0
	for _, t := range tokens {
		n, _ := slices.BinarySearchFunc(t, first, func(a, b time.Time) int {
			if a.After(b) {
				return 1
			}
			return -1
		})
		after, all = after+len(t)-n, all+len(t)
	}
	prompts := len(tokens) * r.Prompt
	r.Prefill = append(r.Prefill, float64(prompts)/first.Sub(start).Seconds())
	r.Total = append(r.Total, float64(prompts+all)/last.Sub(start).Seconds())
	if after > 0 {
		r.Decode = append(r.Decode, float64(after)/last.Sub(first).Seconds())
	}
}

func later(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}

// once runs the requests of a row concurrently and returns the arrival time of each token.
func (w Work) once(ctx context.Context, e *engine.Engine, vocab, run int32) (start time.Time, tokens [][]time.Time, err error) {
	params := sample.Default()
	params.Temperature, params.MaxTokens, params.IgnoreEOS = 0, w.Output, true
	start = time.Now()
	var streams []*engine.Stream
	for i := range w.Streams {
		s, err := e.Submit(ctx, engine.Request{
			ID:     fmt.Sprintf("bench-%d-%d", run, i),
			Prompt: makePrompt(w.Prompt, vocab, run*1009+int32(i)),
			Params: params,
		})
		if err != nil {
			return start, nil, err
		}
		streams = append(streams, s...)
	}
	for _, s := range streams {
		times, err := arrivals(ctx, s, w.Output)
		if err != nil {
			return start, nil, err
		}
		tokens = append(tokens, times)
	}
	return start, tokens, nil
}

// arrivals reads a stream to its end and returns the arrival time of each token.
func arrivals(ctx context.Context, s *engine.Stream, want int) ([]time.Time, error) {
	times := make([]time.Time, 0, want)
	for {
		events, err := s.Next(ctx)
		if err != nil {
			return nil, err
		}
		if len(events) == 0 {
			break
		}
		for _, ev := range events {
			if ev.Err != nil {
				return nil, ev.Err
			}
			if ev.Token >= 0 {
				times = append(times, ev.At)
			}
		}
	}
	if len(times) != want {
		return nil, fmt.Errorf("bench: a stream of %d tokens ended after %d", want, len(times))
	}
	return times, nil
}

// makePrompt returns n tokens; prompts of different seeds share no prefix.
func makePrompt(n int, vocab, seed int32) []int32 {
	out := make([]int32, n)
	for i := range out {
		out[i] = int32((uint64(seed+1)*2654435761 + uint64(i)*40503) % uint64(vocab))
	}
	return out
}
