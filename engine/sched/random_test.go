package sched

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"vapp.dev/engine/kv"
	"vapp.dev/engine/sample"
	"vapp.dev/engine/speculate"
	"vapp.dev/engine/steptime"
)

var (
	full   = kv.Spec{Name: "full", Kind: kv.Full, PageBytes: 1 << 20, BlockSize: 4}
	local  = kv.Spec{Name: "chunk", Kind: kv.Chunk, PageBytes: 650 << 10, BlockSize: 4, Window: 12}
	odd    = kv.Spec{Name: "odd", Kind: kv.Chunk, PageBytes: 450 << 10, BlockSize: 4, Window: 10}
	narrow = kv.Spec{Name: "window", Kind: kv.Window, PageBytes: 700 << 10, BlockSize: 4, Window: 7}
	// Several pages a slab: the cached pages of one sequence may block another class.
	small   = kv.Spec{Name: "small", Kind: kv.Full, PageBytes: 200 << 10, BlockSize: 4}
	mark    = kv.Spec{Name: "checkpoint", Kind: kv.Snapshot, PageBytes: 500 << 10, BlockSize: 4}
	recur   = kv.Spec{Name: "state", Kind: kv.State, PageBytes: 600 << 10}
	smaller = kv.Spec{Name: "smaller", Kind: kv.Window, PageBytes: 250 << 10, BlockSize: 4, Window: 18}
)

// workload is one random test: options and a stream of arrivals.
type workload struct {
	rng     *rand.Rand
	opts    Options
	layout  kv.Layout
	slabs   int
	host    int // slabs of swap space
	caching bool
	cancels bool
	items   bool // prompts have pictures
}

func newWorkload(t testing.TB, seed uint64) *workload {
	w := &workload{rng: rand.New(rand.NewPCG(seed, 7))}
	r := w.rng
	w.opts = Options{
		MaxModelLen: 8 + r.IntN(60), MaxNumSeqs: 1 + r.IntN(8), MaxNumBatchedTokens: 1 + r.IntN(40),
		ChunkedPrefill: r.IntN(4) > 0, Policy: Policy(r.IntN(2)), Lag: r.IntN(2),
	}
	if w.opts.Staged = w.opts.Lag > 0 && seed%2 == 0; w.opts.Staged {
		w.opts.Lag += int(seed/2) % 3
	}
	w.opts.MaxSamples = 1 + r.IntN(w.opts.MaxNumSeqs+2)
	if !w.opts.ChunkedPrefill {
		w.opts.MaxNumBatchedTokens += w.opts.MaxModelLen
	}
	specs := []kv.Spec{full}
	switch r.IntN(9) {
	case 4:
		specs = append(specs, recur)
	case 5:
		specs = []kv.Spec{full, recur, mark}
		more := r.IntN(80)
		w.opts.MaxModelLen += more
		if !w.opts.ChunkedPrefill {
			w.opts.MaxNumBatchedTokens += more
		}
	case 6:
		specs = []kv.Spec{small, smaller, recur, mark}
	case 7:
		specs = append(specs, local)
	case 8:
		specs = []kv.Spec{small, odd, narrow}
	case 0:
		specs = append(specs, narrow)
	case 1:
		specs = []kv.Spec{small, smaller}
	}
	specs = w.speculate(specs)
	l, err := kv.NewLayout(specs)
	if err != nil {
		t.Fatal(err)
	}
	w.layout = l
	w.slabs = l.SequenceSlabs(w.opts.MaxModelLen) + r.IntN(12)/len(specs)/len(specs)
	w.host = max(0, r.IntN(3)-1) * (1 + r.IntN(2*w.slabs))
	w.caching, w.cancels = r.IntN(3) > 0, r.IntN(3) == 0
	return w
}

// speculate lets half of the workloads at lag 0 propose tokens.
func (w *workload) speculate(specs []kv.Spec) []kv.Spec {
	r := w.rng
	if w.opts.Lag > 0 || r.IntN(2) == 0 {
		return specs
	}
	w.opts.Verify = 1 + r.IntN(5)
	if r.IntN(2) == 0 {
		w.opts.Drafts = 1 + r.IntN(w.opts.Verify)
	} else {
		w.opts.Lookup = speculate.NGram{Min: 1, Max: 1 + r.IntN(3)}
	}
	w.opts.MaxSamples += r.IntN(w.opts.MaxNumSeqs*w.opts.Verify + 1)
	specs = slices.Clone(specs)
	for i := range specs {
		if specs[i].Kind == kv.Window {
			specs[i].Ahead = w.opts.Verify
		}
	}
	return specs
}

func (w *workload) params() *sample.Params {
	r, p := w.rng, sample.Default()
	p.MaxTokens = 1 + r.IntN(30)
	p.EOS = []int32{int32(r.IntN(vocab)), int32(r.IntN(vocab))}
	p.IgnoreEOS = r.IntN(3) == 0
	if r.IntN(3) == 0 {
		p.StopTokenIDs = []int32{int32(r.IntN(vocab))}
	}
	if r.IntN(4) == 0 {
		p.MinTokens = r.IntN(p.MaxTokens + 1)
	}
	if r.IntN(4) == 0 {
		p.BadWords = [][]int32{{int32(r.IntN(vocab)), int32(r.IntN(vocab))}}
	}
	if r.IntN(5) == 0 {
		p.PromptLogprobs = r.IntN(3)
	}
	return &p
}

func (w *workload) spec(id int) Spec {
	r := w.rng
	sp := Spec{ID: fmt.Sprint(id), Params: w.params(), Seed: r.Uint64(), Priority: r.IntN(3)}
	for range 1 + r.IntN(w.opts.MaxModelLen-1) {
		sp.Prompt = append(sp.Prompt, int32(r.IntN(8)/7))
	}
	if r.IntN(5) == 0 {
		sp.Salt = "salt"
	}
	if w.items {
		w.picture(&sp)
	}
	return sp
}

// run plays the workload to its end and returns the sequences that were not cancelled.
func (w *workload) run(g *rig, requests int) ([]*Seq, error) {
	var seqs []*Seq
	gone := map[*Seq]bool{}
	for made, idle := 0, 0; ; {
		for made < requests && w.rng.IntN(3) == 0 {
			sp := w.spec(made)
			for choice := range 1 + w.rng.IntN(3)*w.rng.IntN(2) {
				c := sp
				c.Seed = sample.ChoiceSeed(sp.Seed, choice)
				if choice > 0 {
					c.ID, c.PrefixOwner = fmt.Sprintf("%s.%d", sp.ID, choice), seqs[len(seqs)-choice]
				}
				q := NewSeq(c)
				if err := g.s.Add(q); err != nil {
					return nil, err
				}
				seqs = append(seqs, q)
			}
			made++
		}
		if w.cancels && len(seqs) > 0 && w.rng.IntN(10) == 0 {
			if q := seqs[w.rng.IntN(len(seqs))]; g.s.Cancel(q) {
				gone[q] = true
			}
		}
		busy, err := g.beat()
		if err != nil {
			return nil, fmt.Errorf("step %d: %w", g.steps, err)
		}
		if busy {
			idle = 0
		} else if idle++; idle > 100 || g.steps > 100000 {
			return nil, fmt.Errorf("no progress after step %d", g.steps)
		}
		if made == requests && g.s.Idle() {
			break
		}
	}
	var kept []*Seq
	for _, q := range seqs {
		if !gone[q] {
			kept = append(kept, q)
		}
	}
	return kept, nil
}

// TestRandomWorkloads: in every mix of order, chunks, lag, caching, preemption and cancelling, every
// sequence gives the tokens that it gives alone, and all pages are freed.
func TestRandomWorkloads(t *testing.T) {
	var preempted, hits, chunked, out, in, begun, paced int
	var guessed Speculation
	for seed := range uint64(300) {
		w := newWorkload(t, seed)
		g := newRig(t, w.opts, w.layout, w.slabs, w.caching).swap(w.host)
		p := &whims{rng: w.rng, left: &paced}
		if w.opts.ChunkedPrefill && seed%2 == 0 {
			g.s.SetPrefillLimiter(p)
		}
		seqs, err := w.run(g, 25)
		if err != nil {
			t.Fatalf("seed %d, %+v, %d slabs: %v", seed, w.opts, w.slabs, err)
		}
		for _, q := range seqs {
			if err := g.verify(q); err != nil {
				t.Fatalf("seed %d, %+v: %v", seed, w.opts, err)
			}
		}
		if n := g.pool.Share(); n != 0 {
			t.Fatalf("seed %d: %g of the arena is still owned", seed, n)
		}
		preempted += g.total.Preempted
		hits += g.total.CacheHits
		chunked += g.steps
		guessed.Proposed += g.guessed.Proposed
		guessed.Accepted += g.guessed.Accepted
		out += g.total.SwappedOut
		in += g.total.SwappedIn
		begun += g.dev.begun
	}
	t.Logf("%d steps, %d preemptions, %d swapped out, %d in, %d tokens from the cache, %d states from checkpoints, %d proposed, %d accepted", chunked, preempted, out, in, hits, begun, guessed.Proposed, guessed.Accepted)
	if paced < 1000 {
		t.Errorf("%d chunks were cut for others: the workloads test too little", paced)
	}
	if guessed.Accepted < 1000 || guessed.Proposed-guessed.Accepted < 1000 {
		t.Errorf("%d of %d proposals accepted: the workloads test too little", guessed.Accepted, guessed.Proposed)
	}
	if preempted < 100 || hits < 1000 || in < 100 || out < in || begun < 100 {
		t.Errorf("%d preemptions, %d out, %d in %d cached tokens and %d states from checkpoints: the workloads test too little", preempted, out, in, hits, begun)
	}
}

// whims is a PrefillLimiter with random budgets.
type whims struct {
	rng  *rand.Rand
	left *int // number of chunks that it cut
}

func (p *whims) PrefillBudget(w steptime.Work, _, n int) int {
	least := 0
	if w.Prompt == 0 && w.Patches == 0 {
		least = 1
	}
	if k := least + p.rng.IntN(n+1-least); k < n {
		*p.left++
		return k
	}
	return n
}

func (p *whims) Fits(steptime.Work) bool { return p.rng.IntN(2) == 0 }
