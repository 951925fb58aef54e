package main

import (
	"context"
	"fmt"
	"slices"
	"time"

	"vapp.dev/engine"
	"vapp.dev/engine/sample"
)

// measure runs a row repeat times.
func (w benchWork) measure(ctx context.Context, e *engine.Engine, repeat int, vocab int32) (benchRow, error) {
	row := benchRow{benchWork: w}
	for run := range repeat {
		start, tokens, err := w.once(ctx, e, vocab, int32(run))
		if err != nil {
			return benchRow{}, err
		}
		row.add(start, tokens)
	}
	return row, nil
}

// add computes the rates of a run from the times of the tokens of each stream.
func (r *benchRow) add(start time.Time, tokens [][]time.Time) {
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

// once runs the requests of a row at once and returns when each token came.
func (w benchWork) once(ctx context.Context, e *engine.Engine, vocab, run int32) (start time.Time, tokens [][]time.Time, err error) {
	params := sample.Default()
	params.Temperature, params.MaxTokens, params.IgnoreEOS = 0, w.Output, true
	start = time.Now()
	var streams []*engine.Stream
	for i := range w.Streams {
		s, err := e.Submit(ctx, engine.Request{
			ID:     fmt.Sprintf("bench-%d-%d", run, i),
			Prompt: benchPrompt(w.Prompt, vocab, run*1009+int32(i)),
			Params: params,
		})
		if err != nil {
			return start, nil, err
		}
		streams = append(streams, s...)
	}
	for _, s := range streams {
		times, err := tokenTimes(ctx, s, w.Output)
		if err != nil {
			return start, nil, err
		}
		tokens = append(tokens, times)
	}
	return start, tokens, nil
}

// tokenTimes reads a stream to its end.
func tokenTimes(ctx context.Context, s *engine.Stream, want int) ([]time.Time, error) {
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

// benchPrompt is n tokens that no other prompt begins with.
func benchPrompt(n int, vocab, seed int32) []int32 {
	out := make([]int32, n)
	for i := range out {
		out[i] = int32((uint64(seed+1)*2654435761 + uint64(i)*40503) % uint64(vocab))
	}
	return out
}
