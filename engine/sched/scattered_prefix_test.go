package sched

import (
	"fmt"
	"testing"

	"vapp.dev/engine/kv"
	"vapp.dev/engine/sample"
)

// TestScatteredPrefix: eight sequences leave cached pages in all slabs. A sequence that matches one of
// them pins slabs that the other class needs. Alone in an arena of exactly its size it still runs to
// its end, whether slabs are short at its admission or after it has grown.
func TestScatteredPrefix(t *testing.T) {
	l, err := kv.NewLayout([]kv.Spec{
		{Name: "full", Kind: kv.Full, PageBytes: 128 << 10, BlockSize: 4},
		{Name: "window", Kind: kv.Window, PageBytes: 128 << 10, BlockSize: 4, Window: 16},
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, prompt := range []int{150, 20} {
		o := Options{MaxModelLen: 193, MaxNumSeqs: 8, MaxNumBatchedTokens: 64, MaxSamples: 8, ChunkedPrefill: true}
		g := newRig(t, o, l, l.SequenceSlabs(192), true)
		add := func(id string, ids []int32, most int) *Seq {
			p := sample.Default()
			p.MaxTokens = most
			q := NewSeq(Spec{ID: id, Prompt: ids, Params: &p})
			if err := g.s.Add(q); err != nil {
				t.Fatal(err)
			}
			return q
		}
		run := func() {
			for !g.s.Idle() {
				if _, err := g.beat(); err != nil {
					t.Fatal(err)
				}
				if g.steps > 2000 {
					t.Fatalf("prompt of %d: no end in sight", prompt)
				}
			}
		}
		var first *Seq
		for i := range 8 {
			q := add(fmt.Sprint(i), []int32{int32(i), 1, 2, 3}, 13)
			if first == nil {
				first = q
			}
		}
		run()
		ids := append(append([]int32(nil), first.Prompt()...), first.Output()...)
		for len(ids) < prompt {
			ids = append(ids, int32(len(ids)))
		}
		last := add("last", ids, 1000)
		hits := g.total.CacheHits
		run()
		if err := g.verify(last); err != nil {
			t.Error(err)
		}
		if prompt == 20 && g.total.CacheHits == hits {
			t.Error("nothing matched: the test tests nothing")
		}
		t.Logf("prompt of %d: %d preemptions", prompt, g.total.Preempted)
	}
}
