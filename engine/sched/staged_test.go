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
	o := Options{MaxModelLen: 64, MaxNumSeqs: 8, MaxNumBatchedTokens: 64, MaxSamples: 8, ChunkedPrefill: true, Lag: 1, Staged: true}
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
	for turn := range 10 {
		st := s.Next()
		if n := len(st.Rows); n != 3+(turn+1)%2 {
			t.Fatalf("step %d has %d of 7 sequences", turn, n)
		}
		if flight = append(flight, st); len(flight) == 2 {
			for _, a := range flight[0].Rows {
				for _, b := range flight[1].Rows {
					if a.Seq == b.Seq {
						t.Fatalf("sequence %s is in two steps", a.Seq.ID())
					}
				}
			}
			commit(flight[0])
			flight = flight[1:]
		}
	}
}
