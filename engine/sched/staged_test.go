package sched

import (
	"fmt"
	"testing"

	"vapp.dev/engine/kv"
	"vapp.dev/engine/sample"
)

// TestStaged: the steps in flight of a pipeline share the sequences that decode, and none is in two of them.
func TestStaged(t *testing.T) {
	l, err := kv.NewLayout([]kv.Spec{full})
	if err != nil {
		t.Fatal(err)
	}
	for lag, shares := range map[int][]int{1: {4, 3}, 2: {3, 3, 1}, 6: {1, 1, 1, 1, 1, 1, 1}} {
		t.Run(fmt.Sprint(lag), func(t *testing.T) { shared(t, l, lag, shares) })
	}
}

// shared runs 7 sequences in lag+1 steps in flight, which have these shares in turn.
func shared(t *testing.T, l kv.Layout, lag int, shares []int) {
	o := Options{MaxModelLen: 64, MaxNumSeqs: 8, MaxNumBatchedTokens: 64, MaxSamples: 8, ChunkedPrefill: true, Lag: lag, Staged: true}
	s := New(o, kv.NewPool(l, 8*l.SequenceSlabs(64), false))
	for i := range 7 {
		p := sample.Default()
		p.MaxTokens = 20
		if err := s.Add(NewSeq(Spec{ID: fmt.Sprint(i), Prompt: []int32{1, 2}, Params: &p})); err != nil {
			t.Fatal(err)
		}
	}
	commit := func(st *Step) {
		s.Commit(st, Result{Tokens: make([]int32, st.Samples), Status: make([]int32, st.Samples)})
	}
	commit(s.Next()) // the prompts
	var flight []*Step
	for turn := range 14 {
		st := s.Next()
		if st == nil || len(st.Rows) == 0 {
			t.Fatalf("step %d has no sequence", turn)
		}
		if turn < len(shares) && len(st.Rows) != shares[turn] {
			t.Errorf("step %d has %d of 7 sequences, want %d", turn, len(st.Rows), shares[turn])
		}
		for _, other := range flight {
			for _, a := range other.Rows {
				for _, b := range st.Rows {
					if a.Seq == b.Seq {
						t.Fatalf("sequence %s is in two steps", a.Seq.ID())
					}
				}
			}
		}
		if flight = append(flight, st); len(flight) == lag+1 {
			commit(flight[0])
			flight = flight[1:]
		}
	}
}
