package sched

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"vapp.dev/engine/kv"
	"vapp.dev/engine/sample"
)

// TestPoolingWorkloads: in every mix of chunks and pages, a pooling sequence gets each row that it needs
// once, in order, and ends with the last; all pages are freed.
func TestPoolingWorkloads(t *testing.T) {
	var preempted, hits, cut int
	for seed := range uint64(200) {
		w := newWorkload(t, seed)
		w.opts.Verify, w.opts.Drafts, w.opts.Lookup.Min, w.opts.Lookup.Max = 0, 0, 0, 0
		g := &poolRig{rng: w.rng, pool: kv.NewPool(w.layout, w.slabs, w.caching), got: map[*Seq][]int{}}
		g.s = New(w.opts, g.pool)
		if w.host > 0 {
			g.s.SetSwap(kv.NewPool(w.layout, w.host, false))
		}
		if err := g.run(w.opts); err != nil {
			t.Fatalf("seed %d, %+v, %d slabs: %v", seed, w.opts, w.slabs, err)
		}
		if n := g.pool.Share(); n != 0 {
			t.Fatalf("seed %d: %g of the arena is still owned", seed, n)
		}
		preempted, hits, cut = preempted+g.preempted, hits+g.hits, cut+g.cut
	}
	t.Logf("%d preemptions, %d tokens from the cache, %d chunks of prompts", preempted, hits, cut)
	if preempted > 0 { // admission reserves all pages that a pooling sequence needs
		t.Errorf("%d sequences were preempted", preempted)
	}
	if hits < 1000 || cut < 1000 {
		t.Errorf("%d cached tokens, %d chunks: the workloads test too little", hits, cut)
	}
}

// poolRig runs a scheduler without a device: a row stands for its position.
type poolRig struct {
	rng                  *rand.Rand
	pool                 *kv.Pool
	s                    *Scheduler
	seqs                 []*Seq
	flights              []poolFlight
	got                  map[*Seq][]int // positions of the delivered rows
	preempted, hits, cut int
}

// poolFlight is a step and the positions of its sampled rows.
type poolFlight struct {
	st *Step
	at map[int]int
}

func (g *poolRig) run(o Options) error {
	for made, beats := 0, 0; made < 25 || !g.s.Idle(); beats++ {
		if beats > 20000 {
			return fmt.Errorf("no progress")
		}
		if made < 25 && g.rng.IntN(2) == 0 {
			if err := g.add(made, o); err != nil {
				return err
			}
			made++
		}
		st := g.s.Next()
		if st != nil {
			g.preempted += st.Stats.Preempted
			g.hits += st.Stats.CacheHits
			g.flights = append(g.flights, g.fly(st))
		}
		if len(g.flights) > o.Lag || st == nil && len(g.flights) > 0 {
			if err := g.commit(); err != nil {
				return err
			}
		}
		if err := g.s.Check(); err != nil {
			return err
		}
	}
	for _, q := range g.seqs {
		n := len(q.spec.Prompt)
		want := []int{n - 1}
		if q.spec.Params.PromptLogprobs >= 0 {
			want = want[:0]
			for p := range n {
				want = append(want, p)
			}
		}
		if !q.Ended() || !slices.Equal(g.got[q], want) {
			return fmt.Errorf("%s of %d tokens has rows %v, want %v", q.ID(), n, g.got[q], want)
		}
	}
	return nil
}

// add queues a sequence of up to the model length; prompts have common prefixes.
func (g *poolRig) add(i int, o Options) error {
	p := &sample.Params{MaxTokens: 1, Logprobs: -1, PromptLogprobs: -1}
	if g.rng.IntN(2) == 0 {
		p.PromptLogprobs = 0
	}
	sp := Spec{ID: fmt.Sprint(i), Params: p, Pooling: true, Priority: g.rng.IntN(3)}
	for range 1 + g.rng.IntN(o.MaxModelLen) {
		sp.Prompt = append(sp.Prompt, int32(g.rng.IntN(8)/7))
	}
	q := NewSeq(sp)
	if err := g.s.Add(q); err != nil {
		if len(sp.Prompt) == o.MaxModelLen { // the arena holds one position less than that
			return nil
		}
		return err
	}
	g.seqs = append(g.seqs, q)
	return nil
}

func (g *poolRig) fly(st *Step) poolFlight {
	f := poolFlight{st, map[int]int{}}
	for i := range st.Rows {
		r := &st.Rows[i]
		for k := range r.Targets {
			f.at[r.Sample+k] = r.TargetPos + k - 1
		}
		if r.Draw {
			f.at[r.DrawRow()] = r.From + r.Count - 1
		} else {
			g.cut++
		}
	}
	return f
}

func (g *poolRig) commit() error {
	f := g.flights[0]
	g.flights = g.flights[1:]
	for _, o := range g.s.Commit(f.st, Result{}) {
		for k := range o.Targets {
			g.got[o.Seq] = append(g.got[o.Seq], f.at[o.TargetRow+k])
		}
		switch {
		case o.Token >= 0:
			return fmt.Errorf("%s was given a token", o.Seq.ID())
		case o.Finish == FinishStop:
			g.got[o.Seq] = append(g.got[o.Seq], f.at[o.Row])
		case o.Finish != NotFinished:
			return fmt.Errorf("%s ended with %d", o.Seq.ID(), o.Finish)
		}
	}
	return nil
}
