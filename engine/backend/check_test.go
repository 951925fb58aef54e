package backend

import (
	"errors"
	"strings"
	"testing"

	"vapp.dev/kernels"
)

// small returns a program with an op of every kind that Check compares, and a valid step for
// it: two sequences, of 3 tokens from position 0 and of 1 token at position 20.
func small(t *testing.T) (*Program, *Step, Binding, int64) {
	t.Helper()
	c := KVClass{Name: "full", Format: kernels.F16, BlockSize: 16, Layers: 1, KVHeads: 1, HeadDim: 16, PagesPerSlab: 2, MaxPages: 2, Plane: true}
	c.SlabBytes = 2 * c.PageBytes()
	p := &Program{Name: "small", Bucket: Bucket{Tokens: 4, Seqs: 2, Samples: 2}, Classes: []KVClass{c}, Vocab: 48, Weights: []WeightSpec{
		{Name: "table", Rows: 48, Cols: 48, Use: Lookup | Multiply}, {Name: "norm", Rows: 1, Cols: 48, Use: Vector}, {Name: "freqs", Rows: 1, Cols: 8, Use: Vector},
	}}
	r := Record(p)
	ids := r.New("ids", kernels.I32, PerToken, 1)
	x, angles := r.New("x", kernels.F32, PerToken, 48), r.New("angles", kernels.F32, PerToken, 16)
	q, y := r.New("q", kernels.F32, PerToken, 16), r.New("y", kernels.F32, PerToken, 16)
	k, v := r.New("k", kernels.F16, PerToken, 16), r.New("v", kernels.F16, PerToken, 16)
	last, logits := r.New("last", kernels.F32, PerSample, 48), r.New("logits", kernels.F32, PerSample, 48)
	for _, op := range []Op{
		Tokens{ids}, StoreTokens{Ids: ids}, Embed{ids, 0, x, 1, 0}, Angles{InvFreq: 2, Scale: 1, Y: angles}, Norm{X: x, Residual: NoValue, W: 1, Eps: 1e-5, Y: x},
		Rope{QKV: x, Angles: angles, Q: q, K: k, V: v, Heads: 1, KVHeads: 1, HeadDim: 16, Rotary: 16},
		Attention{Q: q, K: k, V: v, Y: y, Heads: 1, KVHeads: 1, HeadDim: 16, Scale: 1}, StoreKV{K: k, V: v},
		Gather{x, last}, Linear{last, 0, NoWeight, logits}, Sample{Logits: logits},
	} {
		r.Do(op)
	}
	shape := StepShape{Tokens: 4, Seqs: 2, Samples: 2, Vocab: 48, MaxPages: []int{2}, Bias: 2, Logprobs: 3}
	s := shape.Carve(make([]byte, shape.SetBytes()))
	copy(s.Tokens, []int32{1, 2, 3, -2})
	copy(s.Positions, []int32{0, 1, 2, 20})
	copy(s.Seq, []int32{0, 0, 0, 1})
	copy(s.First, []int32{0, 3, 4})
	copy(s.Pages[0], []int32{0, -1, 2, 3})
	copy(s.Rows, []int32{2, 3})
	for i := range s.Sampling {
		s.Sampling[i] = SampleRow{Seq: int32(i), TopP: 1, Repetition: 1, HistoryLen: 3, PromptLen: 3, NumTop: 3, NumBias: 2}
	}
	return p, s, Binding{Tokens: 4, Seqs: 2, Samples: 2}, 2 * c.SlabBytes
}

func TestProgramCheck(t *testing.T) {
	p, _, _, _ := small(t)
	if err := p.Check(); err != nil {
		t.Fatal(err)
	}
	for want, op := range map[string]Op{
		"Out is value 99 of 9":       Tokens{99},
		"Out (x) is f32, not i32":    Tokens{1},
		"class 1 of 1":               StoreTokens{Ids: 0, Class: 1},
		"Table is weight 3":          Embed{0, 3, 1, 1, 0},
		"packed for another use":     Embed{0, 1, 1, 1, 0},
		"1×8, not 1×48":              Norm{X: 1, Residual: NoValue, W: 2, Eps: 1e-5, Y: 1},
		"Residual (q) has 16 col":    Norm{X: 1, Residual: 3, W: 1, Eps: 1e-5, Y: 1},
		"rows of another kind":       Norm{X: 1, Residual: NoValue, W: 1, Eps: 1e-5, Y: 7},
		"X is Y":                     Linear{7, 0, NoWeight, 7},
		"not paged are whole":        Attention{Q: 3, K: 5, V: 6, Y: 4, Heads: 1, KVHeads: 1, HeadDim: 16, Bidirectional: true, Rebuild: &Rebuild{Weight: 2, Rotary: 4}},
		"the op sees one: true of 8": Attention{Q: 3, K: 5, V: 6, Y: 4, Heads: 1, KVHeads: 1, HeadDim: 16, Scale: 1, Window: 8, Chunked: true},
		"a chunk with tokens that":   Attention{Q: 3, K: 5, V: 6, Y: 4, Heads: 1, KVHeads: 1, HeadDim: 16, Scale: 1, Window: 8, Chunked: true, Items: true},
		"the op rebuilds: true":      Attention{Q: 3, K: 5, V: 6, Y: 4, Heads: 1, KVHeads: 1, HeadDim: 16, Rebuild: &Rebuild{Weight: 2, Rotary: 4}},
		"stores 16 numbers of a":     Attention{Q: 3, K: 5, V: 6, Y: 4, Heads: 1, KVHeads: 1, HeadDim: 16, Latent: 8},
		"dimensions of keys with 2":  Attention{Q: 3, K: 5, V: 6, Y: 4, Heads: 2, KVHeads: 2, HeadDim: 8, Latent: 8, Bidirectional: true},
		"a window, sinks or a":       Attention{Q: 3, K: 5, V: 6, Y: 4, Heads: 1, KVHeads: 1, HeadDim: 16, Latent: 16, Softcap: 1, Bidirectional: true},
		"heads of 4+3, 4 latent":     LatentRope{Q: 1, KV: 1, Angles: 2, Query: 3, K: 5, V: 6, Norm: 2, Heads: 1, Nope: 4, Rank: 4, Rotary: 3},
		"KV (x) has 48 columns":      LatentRope{Q: 1, KV: 1, Angles: 2, Query: 3, K: 5, V: 6, Norm: 2, Heads: 2, Nope: 16, Rank: 16, Rotary: 8},
		"X (x) has rows of another":  HeadLinear{X: 1, W: 0, Y: 8, Heads: 1},
		"0 matrices for 2 heads":     HeadLinear{X: 1, W: 0, Y: 4, Heads: 2},
		"Bias (freqs) is 1×8":        Linear{7, 0, 2, 8},
		"48 columns, not 32":         GLU{X: 1, Y: 4},
		"X (last) has rows":          Gather{7, 8},
		"Y (y) has 16 columns":       AllGather{1, 4},
		"Y is value 99 of 9":         Receive{99},
		"X (ids) is i32, not f32":    Send{0},
		"Logits (x) has rows":        Sample{Logits: 1},
		"1×8, not 1×24":              Angles{InvFreq: 2, Scale: 1, Y: 1},
		"takes neither gates":        Rope{QKV: 1, Angles: 2, Q: 3, K: 5, V: 6, Heads: 1, KVHeads: 1, HeadDim: 16, Rotary: 16, Norm: &HeadNorm{Q: NoWeight, K: NoWeight, Whole: true, After: true}},
		"together on 2 ranks":        Rope{QKV: 1, Angles: 2, Q: 3, K: 5, V: 6, Heads: 1, KVHeads: 1, HeadDim: 16, Rotary: 16, Norm: &HeadNorm{Q: NoWeight, K: NoWeight, Whole: true}},
		"neither rotated heads":      Rope{QKV: 1, Angles: 2, Q: 3, K: 5, V: 6, Heads: 1, KVHeads: 1, HeadDim: 16, Rotary: 16, Norm: &HeadNorm{Q: NoWeight, K: NoWeight, Plain: true, V: true}},
		"Norm.K (norm) is 1×48":      Rope{QKV: 1, Angles: 2, Q: 3, K: 5, V: 6, Heads: 1, KVHeads: 1, HeadDim: 16, Rotary: 16, Norm: &HeadNorm{Q: NoWeight, K: 1, Each: true}},
		"a temperature of 0.1":       Angles{InvFreq: 2, Scale: 1, Y: 2, Temperature: Temperature{Beta: 0.1}},
		"with several positions":     Angles{InvFreq: 2, Scale: 1, Y: 2, Temperature: Temperature{Beta: 0.1, Every: 4}, Sections: [3]int{1, 1, 1}},
		"that do not scale whole":    Rope{QKV: 1, Angles: 2, Q: 3, K: 5, V: 6, Heads: 1, KVHeads: 1, HeadDim: 16, Rotary: 16, Tempered: true, QueryAngles: 2, Norm: &HeadNorm{Q: NoWeight, K: NoWeight, After: true}},
		"QueryAngles (x) has":        Rope{QKV: 1, Angles: 2, Q: 3, K: 5, V: 6, Heads: 1, KVHeads: 1, HeadDim: 16, Rotary: 16, Tempered: true, QueryAngles: 1},
		"a cap of -1":                Attention{Q: 3, K: 5, V: 6, Y: 4, Heads: 1, KVHeads: 1, HeadDim: 16, Scale: 1, Softcap: -1},
		"the best 49 of 48":          Route{Logits: 1, Top: 49},
		"score 4":                    Route{Logits: 1, Top: 2, Score: 4},
		"logits divided by":          Route{Logits: 1, Top: 2, Score: Logit, Normalize: true},
		"selected experts with":      Route{Logits: 1, Top: 2, Groups: 2, TopGroups: 1},
		"a factor of -1":             Route{Logits: 1, Top: 2, Factor: -1},
		"Correction (freqs) is":      Route{Logits: 1, Top: 2, Score: Sigmoid, Corrected: true, Correction: 2},
		"the best 1 of no groups":    Route{Logits: 1, Top: 2, Score: Sigmoid, TopGroups: 1},
		"32 groups of 48 experts":    Route{Logits: 1, Top: 2, Score: Sigmoid, Groups: 32, TopGroups: 1},
		"the best 5 of 4 groups":     Route{Logits: 1, Top: 2, Score: Sigmoid, Groups: 4, TopGroups: 5},
		"compared by 3 experts":      Route{Logits: 1, Top: 2, Score: Sigmoid, Groups: 4, TopGroups: 1, GroupTop: 3},
		"25 experts of 48 in 2 of":   Route{Logits: 1, Top: 25, Score: Sigmoid, Groups: 4, TopGroups: 2},
		"Gate (y) has 16 columns":    Gate{X: 1, Gate: 4},
		"17 rotated dimensions":      Rope{QKV: 1, Angles: 2, Q: 3, K: 5, V: 6, Heads: 1, KVHeads: 1, HeadDim: 16, Rotary: 17},
		"without a key/value head":   Rope{QKV: 1, Angles: 2, Q: 1, K: 5, V: 6, Heads: 3, HeadDim: 16, Rotary: 16},
		"K is i32":                   Rope{QKV: 1, Angles: 2, Q: 3, K: 0, V: 6, Heads: 1, KVHeads: 1, HeadDim: 16, Rotary: 16},
		"3 heads, 2 key/value":       Attention{Q: 3, K: 5, V: 6, Y: 4, Heads: 3, KVHeads: 2, HeadDim: 16},
		"layer 1 of the 1":           StoreKV{K: 5, V: 6, Layer: 1},
		"K (q) is f32, not f16":      StoreKV{K: 3, V: 6},
		"has 1 heads of 16, not 1 ":  Attention{Q: 3, K: 5, V: 6, Y: 4, Heads: 1, KVHeads: 1, HeadDim: 8},
	} {
		p, _, _, _ := small(t)
		p.Shard.World = 2
		p.Ops = append(p.Ops, op)
		var bad *ProgramError
		if err := p.Check(); !errors.As(err, &bad) || bad.Op != len(p.Ops)-1 || !strings.Contains(bad.Why, want) {
			t.Errorf("%+v: %v, want %q", op, err, want)
		}
	}
	p.Values[1].Offset = p.Scratch
	if p.Check() == nil {
		t.Error("a value outside of scratch passes")
	}
}

func TestStepCheck(t *testing.T) {
	p, s, b, kv := small(t)
	if err := s.Check(p, b, kv); err != nil {
		t.Fatal(err)
	}
	for what, spoil := range map[string]func(s *Step, b *Binding, kv *int64){
		"no tokens":              func(s *Step, b *Binding, kv *int64) { b.Tokens = 0 },
		"too many tokens":        func(s *Step, b *Binding, kv *int64) { b.Tokens = 5 },
		"no sequences":           func(s *Step, b *Binding, kv *int64) { b.Seqs = 0 },
		"too many sequences":     func(s *Step, b *Binding, kv *int64) { b.Seqs = 3 },
		"too many samples":       func(s *Step, b *Binding, kv *int64) { b.Samples = 3 },
		"samples below 0":        func(s *Step, b *Binding, kv *int64) { b.Samples = -1 },
		"a token of 48":          func(s *Step, b *Binding, kv *int64) { s.Tokens[0] = 48 },
		"a row of 2":             func(s *Step, b *Binding, kv *int64) { s.Tokens[0] = -3 },
		"the lowest token":       func(s *Step, b *Binding, kv *int64) { s.Tokens[0] = -1 << 31 },
		"another sequence":       func(s *Step, b *Binding, kv *int64) { s.Seq[1] = 1 },
		"First begins later":     func(s *Step, b *Binding, kv *int64) { s.First[0] = 1 },
		"First ends earlier":     func(s *Step, b *Binding, kv *int64) { s.First[2] = 3 },
		"First runs away":        func(s *Step, b *Binding, kv *int64) { s.First[1] = 1 << 30 },
		"First goes back":        func(s *Step, b *Binding, kv *int64) { s.First[1] = -1 },
		"a position below 0":     func(s *Step, b *Binding, kv *int64) { s.Positions[3] = -1 },
		"a hole":                 func(s *Step, b *Binding, kv *int64) { s.Positions[2] = 3 },
		"beyond the table":       func(s *Step, b *Binding, kv *int64) { s.Positions[3] = 32 },
		"no page":                func(s *Step, b *Binding, kv *int64) { s.Pages[0][0] = -1 },
		"no page of the history": func(s *Step, b *Binding, kv *int64) { s.Pages[0][2] = -1 },
		"a page outside":         func(s *Step, b *Binding, kv *int64) { s.Pages[0][3] = 4 },
		"a smaller arena":        func(s *Step, b *Binding, kv *int64) { *kv-- },
		"a row outside":          func(s *Step, b *Binding, kv *int64) { s.Rows[1] = 4 },
		"a row below 0":          func(s *Step, b *Binding, kv *int64) { s.Rows[1] = -1 },
		"a sequence outside":     func(s *Step, b *Binding, kv *int64) { s.Sampling[1].Seq = 2 },
		"a sequence below 0":     func(s *Step, b *Binding, kv *int64) { s.Sampling[1].Seq = -1 },
		"too many logprobs":      func(s *Step, b *Binding, kv *int64) { s.Sampling[1].NumTop = 4 },
		"logprobs below 0":       func(s *Step, b *Binding, kv *int64) { s.Sampling[1].NumTop = -1 },
		"too many edits":         func(s *Step, b *Binding, kv *int64) { s.Sampling[1].NumBias = 3 },
		"edits below 0":          func(s *Step, b *Binding, kv *int64) { s.Sampling[1].NumBias = -1 },
		"an edit outside":        func(s *Step, b *Binding, kv *int64) { s.Bias[3].Token = 48 },
		"an edit below 0":        func(s *Step, b *Binding, kv *int64) { s.Bias[2].Token = -1 },
		"a target outside":       func(s *Step, b *Binding, kv *int64) { s.Sampling[1].Flags, s.Sampling[1].Target = UseTarget, 48 },
		"top_k below 0":          func(s *Step, b *Binding, kv *int64) { s.Sampling[1].TopK = -1 },
		"top_p below 0":          func(s *Step, b *Binding, kv *int64) { s.Sampling[1].TopP = -0.5 },
		"min_p above 1":          func(s *Step, b *Binding, kv *int64) { s.Sampling[1].MinP = 1.5 },
		"a history too long":     func(s *Step, b *Binding, kv *int64) { s.Sampling[0].HistoryLen = 4 },
		"a history below 0":      func(s *Step, b *Binding, kv *int64) { s.Sampling[0].HistoryLen = -1 },
		"a prompt below 0":       func(s *Step, b *Binding, kv *int64) { s.Sampling[0].PromptLen = -1 },
	} {
		p, s, b, kv := small(t)
		spoil(s, &b, &kv)
		var bad *StepError
		if err := s.Check(p, b, kv); !errors.As(err, &bad) {
			t.Errorf("%s: %v", what, err)
		}
	}
	// A sequence without tokens has no history, and its pages do not matter.
	copy(s.First, []int32{0, 4, 4})
	copy(s.Positions, []int32{0, 1, 2, 3})
	s.Seq[3], s.Pages[0][2], s.Sampling[1].Seq = 0, 99, 0
	if err := s.Check(p, b, kv); err != nil {
		t.Errorf("an empty sequence: %v", err)
	}
	s.Sampling[1].Seq = 1
	if s.Check(p, b, kv) == nil {
		t.Error("an empty sequence with a history passes")
	}
}
