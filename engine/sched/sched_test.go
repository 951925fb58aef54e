package sched

import (
	"errors"
	"fmt"
	"math"
	"testing"

	"vapp.dev/engine/kv"
	"vapp.dev/engine/sample"
)

func oneClass(t testing.TB, pageBytes int64, block int) kv.Layout {
	l, err := kv.NewLayout([]kv.Spec{{Name: "full", PageBytes: pageBytes, BlockSize: block}})
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func TestOptionsValidate(t *testing.T) {
	good := Options{MaxModelLen: 64, MaxNumSeqs: 4, MaxNumBatchedTokens: 16, MaxSamples: 4, ChunkedPrefill: true}
	if err := good.Validate(); err != nil {
		t.Fatal(err)
	}
	for option, edit := range map[string]func(*Options){
		"maxModelLen":            func(o *Options) { o.MaxModelLen = 1 },
		"maxNumSeqs":             func(o *Options) { o.MaxNumSeqs = 0 },
		"maxNumBatchedTokens":    func(o *Options) { o.ChunkedPrefill = false },
		"sampled rows of a step": func(o *Options) { o.MaxSamples = 0 },
		"lag":                    func(o *Options) { o.Lag = 2 },
		"policy":                 func(o *Options) { o.Policy = 2 },
	} {
		o := good
		edit(&o)
		var e *OptionError
		if err := o.Validate(); !errors.As(err, &e) || e.Option != option {
			t.Errorf("%s: %v", option, err)
		}
	}
}

func TestAddRefuses(t *testing.T) {
	o := Options{MaxModelLen: 64, MaxNumSeqs: 4, MaxNumBatchedTokens: 16, MaxSamples: 4, ChunkedPrefill: true}
	s := New(o, kv.NewPool(oneClass(t, 1<<20, 4), 8, true))
	p := sample.Default()
	p.MaxTokens = math.MaxInt
	q := NewSeq(Spec{Prompt: make([]int32, 10), Params: &p})
	var e *NeverFitsError
	if err := s.Add(q); !errors.As(err, &e) || *e != (NeverFitsError{10, 54, 33, true}) {
		t.Errorf("%v", err)
	}
	if err := s.Add(NewSeq(Spec{Prompt: make([]int32, 64), Params: &p})); !errors.As(err, &e) || e.Arena || e.Limit != 64 {
		t.Errorf("%v", err)
	}
	p.MaxTokens = 3
	if s.Add(NewSeq(Spec{Params: &p})) == nil {
		t.Error("an empty prompt was taken")
	}
	if err := s.Add(q); err != nil {
		t.Error(err)
	}
	if s.Add(q) == nil {
		t.Error("a sequence was added twice")
	}
	if s.Cancel(NewSeq(Spec{Params: &p})) {
		t.Error("a sequence that was never added was cancelled")
	}
}

// TestNoStarvation: under fcfs a long request ends although shorter ones keep arriving, with and
// without chunked prefill.
func TestNoStarvation(t *testing.T) {
	for _, chunked := range []bool{true, false} {
		o := Options{MaxModelLen: 48, MaxNumSeqs: 3, MaxNumBatchedTokens: 48, MaxSamples: 3, ChunkedPrefill: chunked}
		g := newRig(t, o, oneClass(t, 1<<20, 4), 12, true)
		add := func(id string, prompt, output int) *Seq {
			p := sample.Default()
			p.MaxTokens = output
			sp := Spec{ID: id, Params: &p}
			for i := range prompt {
				sp.Prompt = append(sp.Prompt, int32(len(id)*7+i)%vocab)
			}
			q := NewSeq(sp)
			if err := g.s.Add(q); err != nil {
				t.Fatal(err)
			}
			return q
		}
		for i := range 10 {
			add(fmt.Sprint("early", i), 8, 12)
		}
		long := add("long", 30, 18)
		for i := 0; !long.Ended(); i++ {
			if i%3 == 0 {
				add(fmt.Sprint("late", i), 4, 12)
			}
			if _, err := g.beat(); err != nil {
				t.Fatal(err)
			}
			if i > 300 {
				t.Fatalf("chunked %v: the long request has not ended after %d steps", chunked, i)
			}
		}
		if err := g.verify(long); err != nil {
			t.Error(err)
		}
	}
}

// TestRowsWithoutToken: a row without a token ends its sequence and no other.
func TestRowsWithoutToken(t *testing.T) {
	for lag := range 2 {
		o := Options{MaxModelLen: 48, MaxNumSeqs: 3, MaxNumBatchedTokens: 48, MaxSamples: 3, ChunkedPrefill: true, Lag: lag}
		pool := kv.NewPool(oneClass(t, 1<<20, 4), 12, true)
		s := New(o, pool)
		p := sample.Default()
		a := NewSeq(Spec{ID: "a", Prompt: []int32{1, 2, 3, 4, 5}, Params: &p})
		b := NewSeq(Spec{ID: "b", Prompt: []int32{2, 2, 3, 4, 5}, Params: &p})
		for _, q := range []*Seq{a, b} {
			if err := s.Add(q); err != nil {
				t.Fatal(err)
			}
		}
		first := s.Next()
		second := s.Next()
		if (second != nil) != (lag == 1) {
			t.Fatalf("lag %d: second step %v", lag, second)
		}
		outs := s.Commit(first, Result{Tokens: []int32{-1, 7}, Status: []int32{1, 0}})
		if len(outs) != 2 || outs[0].Finish != FinishError || outs[0].Token != -1 || outs[1].Token != 7 || outs[1].Finish != NotFinished {
			t.Fatalf("outputs %+v", outs)
		}
		if n := pool.Usage(0).Cached; n != 0 {
			t.Errorf("%d blocks of a broken sequence are findable", n)
		}
		if lag == 1 {
			if outs := s.Commit(second, Result{Tokens: []int32{3, 8}, Status: []int32{0, 0}}); len(outs) != 1 || outs[0].Seq != b {
				t.Fatalf("outputs %+v", outs)
			}
		}
		s.Cancel(b)
		if err := pool.Check(); err != nil || !s.Idle() || pool.Share() != 0 {
			t.Errorf("%v, idle %v, share %g", err, s.Idle(), pool.Share())
		}
	}
}

func TestSteadyDecodeAllocatesNothing(t *testing.T) {
	s, _, r := decoding(t, 16, 1)
	var last *Step
	beat := func() {
		st := s.Next()
		if last != nil {
			s.Commit(last, r)
		}
		last = st
	}
	for range 40 {
		beat()
	}
	// Page tables, token lists and block keys grow: far less often than once a step and sequence.
	if n := testing.AllocsPerRun(200, beat); n > 4 {
		t.Errorf("%g allocations a step of 16 sequences", n)
	}
}

// decoding returns a scheduler with n sequences whose prompts are computed.
func decoding(t testing.TB, n, lag int) (*Scheduler, *kv.Pool, Result) {
	pool := kv.NewPool(oneClass(t, 368<<10, 16), 16000, true)
	s := New(Options{MaxModelLen: 1 << 20, MaxNumSeqs: n, MaxNumBatchedTokens: 1 << 20, MaxSamples: n, ChunkedPrefill: true, Lag: lag}, pool)
	r := Result{Tokens: make([]int32, n), Status: make([]int32, n)}
	for i := range n {
		p := sample.Default()
		p.MaxTokens = 5000
		prompt := make([]int32, 100)
		prompt[0] = int32(i)
		if err := s.Add(NewSeq(Spec{Prompt: prompt, Params: &p})); err != nil {
			t.Fatal(err)
		}
	}
	s.Commit(s.Next(), r)
	return s, pool, r
}

func BenchmarkDecode64(b *testing.B) {
	for _, lag := range []int{0, 1} {
		b.Run(fmt.Sprint("lag", lag), func(b *testing.B) {
			b.ReportAllocs()
			var s *Scheduler
			var r Result
			var last *Step
			for i := 0; b.Loop(); i++ {
				if i%2000 == 0 {
					b.StopTimer()
					s, _, r = decoding(b, 64, lag)
					last = nil
					b.StartTimer()
				}
				st := s.Next()
				if lag == 0 {
					last = st
				}
				if last != nil {
					s.Commit(last, r)
				}
				last = st
			}
		})
	}
}
