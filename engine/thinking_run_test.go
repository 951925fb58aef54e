package engine_test

import (
	"context"
	"slices"
	"testing"

	"vapp.dev/engine"
)

// TestThinkingBudget: until the budget is spent a reply is that without a budget, then the marker
// follows. It runs with and without overlap, with logprobs, preemptions and several choices.
func TestThinkingBudget(t *testing.T) {
	const budget = 5
	for _, form := range []struct {
		overlap bool
		slabs   int
	}{{false, 16}, {true, 16}, {true, least}} {
		y := newToy(t)
		y.opts.Overlap, y.slabs = form.overlap, form.slabs
		e := y.open(t)
		var free, bound []*engine.Stream
		for i := range 8 {
			r := request(i)
			r.N, r.Params.MaxTokens, r.Params.MinTokens = 1, 12, 12
			r.Params.Logprobs = i%2 - 1
			for _, list := range []*[]*engine.Stream{&free, &bound} {
				s, err := e.Submit(context.Background(), r)
				if err != nil {
					t.Fatal(err)
				}
				*list = append(*list, s...)
				r.Thinking = &engine.Thinking{Budget: budget, Inside: true, Open: engine.Marker{ID: -1}, Ends: []engine.Marker{{ID: 319}}, Close: []int32{7, 319}}
			}
		}
		for i := range free {
			want, _ := collect(t, free[i])
			got, last := collect(t, bound[i])
			if last.Finish != engine.FinishLength || len(got) != 12 {
				t.Errorf("%+v, %d: %v ends by %v (%v)", form, i, got, last.Finish, last.Err)
				continue
			}
			if !slices.Equal(got[:budget], want[:budget]) || got[budget] != 7 || got[budget+1] != 319 {
				t.Errorf("%+v, %d: got %v, free %v", form, i, got, want)
			}
		}
		if err := e.Check(context.Background()); err != nil {
			t.Error(err)
		}
	}
}
