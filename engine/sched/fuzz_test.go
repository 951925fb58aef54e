package sched

import (
	"fmt"
	"slices"
	"testing"

	"vapp.dev/engine/kv"
	"vapp.dev/engine/sample"
	"vapp.dev/engine/speculate"
)

// reader returns bytes, then zeros.
type reader []byte

func (r *reader) next(n int) int {
	if len(*r) == 0 {
		return 0
	}
	b := (*r)[0]
	*r = (*r)[1:]
	return int(b) % n
}

// FuzzSched plays any sequence of arrivals, cancels, policy changes and steps. After each the pages are
// accounted for, every sequence ends, and those that were not cancelled give the tokens that they
// give alone.
func FuzzSched(f *testing.F) {
	f.Add([]byte("\x10\x04\x10\x04\x01\x01\x00\x08\x01\x00"))
	f.Add([]byte("0123456789abcdefghijklmnopqrstuvwxyz0123456789abcdefghijklmnopqrstuvwxyz"))
	f.Add([]byte("\x20\x07\x05\x06\x01\x00\x01\x00\x01\x00\x10\x10\x00\x00\x00\x10\x10\x00\x00\x06\x06\x06\x06\x04\x00\x00\x08\x1f"))
	f.Fuzz(func(t *testing.T, data []byte) {
		in := reader(data[:min(len(data), 2000)])
		o := Options{
			MaxModelLen: 2 + in.next(48), MaxNumSeqs: 1 + in.next(8), MaxNumBatchedTokens: 1 + in.next(32),
			MaxSamples: 1 + in.next(10), Lag: in.next(2), ChunkedPrefill: in.next(4) > 0, Policy: Policy(in.next(2)),
		}
		if !o.ChunkedPrefill {
			o.MaxNumBatchedTokens += o.MaxModelLen
		}
		specs := slices.Clone([][]kv.Spec{{full}, {full, narrow}, {full, recur, mark}, {full, narrow, recur}, {full, narrow, recur, mark}, {full, local}, {full, odd, local}}[in.next(7)])
		if how := in.next(3); how > 0 && o.Lag == 0 {
			o.Verify = 1 + in.next(5)
			if how == 1 {
				o.Lookup = speculate.NGram{Min: 1, Max: 2}
			} else {
				o.Drafts = o.Verify
			}
			if len(specs) > 1 && specs[1].Kind == kv.Window {
				specs[1].Ahead = o.Verify
			}
		}
		l, err := kv.NewLayout(specs)
		if err != nil {
			t.Fatal(err)
		}
		g := newRig(t, o, l, l.SequenceSlabs(o.MaxModelLen)+in.next(8), in.next(4) > 0)
		g.swap(in.next(6))
		g.s.opts.Staged = o.Lag > 0 && in.next(2) > 0
		play(t, g, &in)
	})
}

func play(t *testing.T, g *rig, in *reader) {
	var seqs []*Seq
	gone := map[*Seq]bool{}
	beat := func() {
		if _, err := g.beat(); err != nil {
			t.Fatal(err)
		}
	}
	for len(*in) > 0 && len(seqs) < 40 {
		switch op := in.next(8); {
		case op < 3:
			q := NewSeq(fuzzSpec(g.opts, in, len(seqs)))
			if len(seqs) > 0 && op == 0 {
				last := seqs[len(seqs)-1]
				q = NewSeq(Spec{ID: q.ID(), Prompt: last.spec.Prompt, Params: q.spec.Params, Seed: q.spec.Seed, Salt: last.spec.Salt, PrefixOwner: last})
			}
			if err := g.s.Add(q); err != nil {
				t.Fatal(err)
			}
			seqs = append(seqs, q)
		case op == 3 && len(seqs) > 0:
			if q := seqs[in.next(len(seqs))]; g.s.Cancel(q) {
				gone[q] = true
			}
			if err := g.pool.Check(); err != nil {
				t.Fatal(err)
			}
		case op == 4:
			g.s.SetPolicy(Policy(in.next(2)))
		default:
			beat()
		}
	}
	for i := 0; !g.s.Idle(); i++ {
		if beat(); i > 20000 {
			t.Fatalf("not idle after %d steps", g.steps)
		}
	}
	for _, q := range seqs {
		if gone[q] {
			continue
		}
		if err := g.verify(q); err != nil {
			t.Fatal(err)
		}
	}
	if n := g.pool.Share(); n != 0 {
		t.Fatalf("%g of the arena is still owned", n)
	}
}

func fuzzSpec(o Options, in *reader, id int) Spec {
	p := sample.Default()
	p.MaxTokens = 1 + in.next(24)
	p.EOS = []int32{int32(in.next(vocab)), int32(in.next(vocab))}
	flags := in.next(256)
	p.IgnoreEOS = flags&1 > 0
	if flags&2 > 0 {
		p.MinTokens = p.MaxTokens / 2
	}
	if flags&4 > 0 {
		p.BadWords = [][]int32{{int32(flags % vocab), 3}}
	}
	if flags&24 == 24 {
		p.PromptLogprobs = 0
	}
	sp := Spec{ID: fmt.Sprint(id), Params: &p, Seed: uint64(in.next(256)), Priority: flags >> 6}
	if flags&32 > 0 {
		sp.Salt = "s"
	}
	n := 1 + in.next(o.MaxModelLen-1)
	for i := range n {
		sp.Prompt = append(sp.Prompt, int32(i/(1+flags%16)%2))
	}
	return sp
}
