package main

import (
	"context"
	"fmt"
	"slices"
	"time"

	"vapp.dev/engine"
	"vapp.dev/engine/sample"
)

// measure runs n equal requests at once, o.repeat times, and returns the median
// of prompt tokens per second until every first token, and of generated tokens per
// second from then on.
func (o benchOptions) measure(ctx context.Context, e *engine.Engine, n int, vocab int32) (prefill, decode float64, err error) {
	var pre, dec []float64
	for run := range o.repeat {
		p, d, err := o.once(ctx, e, n, vocab, int32(run))
		if err != nil {
			return 0, 0, err
		}
		pre, dec = append(pre, p), append(dec, d)
	}
	slices.Sort(pre)
	slices.Sort(dec)
	return pre[len(pre)/2], dec[len(dec)/2], nil
}

func (o benchOptions) once(ctx context.Context, e *engine.Engine, n int, vocab, run int32) (prefill, decode float64, err error) {
	params := sample.Default()
	params.Temperature, params.MaxTokens, params.IgnoreEOS = 0, o.output, true
	start := time.Now()
	var streams []*engine.Stream
	for i := range n {
		s, err := e.Submit(ctx, engine.Request{
			ID:     fmt.Sprintf("bench-%d-%d", run, i),
			Prompt: benchPrompt(o.prompt, vocab, run*1009+int32(i)),
			Params: params,
		})
		if err != nil {
			return 0, 0, err
		}
		streams = append(streams, s...)
	}
	var first, last time.Time
	after := 0
	for _, s := range streams {
		got := 0
		for {
			events, err := s.Next(ctx)
			if err != nil {
				return 0, 0, err
			}
			if len(events) == 0 {
				break
			}
			for _, ev := range events {
				if ev.Err != nil {
					return 0, 0, ev.Err
				}
				if ev.Token < 0 {
					continue
				}
				if got == 0 && ev.At.After(first) {
					first = ev.At
				}
				got++
				if ev.At.After(last) {
					last = ev.At
				}
			}
		}
		after += got - 1
	}
	return float64(n*o.prompt) / first.Sub(start).Seconds(), float64(after) / last.Sub(first).Seconds(), nil
}

// benchPrompt is n tokens that no other prompt begins with.
func benchPrompt(n int, vocab, seed int32) []int32 {
	out := make([]int32, n)
	for i := range out {
		out[i] = int32((uint64(seed+1)*2654435761 + uint64(i)*40503) % uint64(vocab))
	}
	return out
}
