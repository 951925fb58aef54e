package cuda

import (
	"slices"
	"strings"
	"testing"

	"vapp.dev/engine/backend"
	"vapp.dev/kernels"
)

// dense records a dense layer between two norms, with weights stored as f. change may replace an op before it is recorded.
func dense(t *testing.T, f, kv kernels.Format, change func(r *backend.Recorder, op backend.Op) backend.Op) *backend.Program {
	t.Helper()
	const cols, tokens = 256, 64
	spec := func(name string, use backend.Use, f kernels.Format, rows, cols int) backend.WeightSpec {
		return backend.WeightSpec{Name: name, Rows: rows, Cols: cols, Source: f, Use: use, Parts: []backend.Part{{Tensor: name, Rows: rows, Format: f}}}
	}
	class := backend.KVClass{Name: "full", Format: kv, BlockSize: 16, Layers: 1, KVHeads: 2, HeadDim: 64, MaxPages: 512, PagesPerSlab: 1}
	class.SlabBytes = class.PageBytes()
	p := &backend.Program{Name: "p", Vocab: 1000, Classes: []backend.KVClass{class}, Bucket: backend.Bucket{Tokens: tokens, Seqs: 8, Samples: 8}}
	p.Weights = []backend.WeightSpec{
		spec("table", backend.Lookup|backend.Multiply, f, 1000, cols), spec("qkv", backend.Multiply, f, 2*cols, cols), spec("o", backend.Multiply, f, cols, cols),
		spec("up", backend.Multiply, f, 2*512, cols), spec("down", backend.Multiply, f, cols, 512),
		spec("norm", backend.Vector, kernels.F32, 1, cols), spec("freq", backend.Vector, kernels.F32, 1, 32), spec("bias", backend.Vector, kernels.F32, 1, 2*cols),
	}
	r := backend.Record(p)
	do := func(op backend.Op) {
		if change != nil {
			op = change(r, op)
		}
		r.Do(op)
	}
	v := func(name string, cols int) backend.Value { return r.New(name, kernels.F32, backend.PerToken, cols) }
	const none = backend.NoWeight
	x := v("residual", cols)
	normed := v("normed", cols)
	do(backend.Norm{X: x, Residual: backend.NoValue, W: 5, Y: normed})
	qkv := v("qkv", 2*cols)
	do(backend.Linear{X: normed, W: 1, Bias: none, Y: qkv})
	r.Free(normed)
	angles, q := v("angles", 64), v("q", cols)
	k, val := r.New("k", kv, backend.PerToken, 128), r.New("v", kv, backend.PerToken, 128)
	do(backend.Angles{InvFreq: 6, Scale: 1, Y: angles})
	do(backend.Rope{QKV: qkv, Angles: angles, Q: q, K: k, V: val, Heads: 4, KVHeads: 2, HeadDim: 64, Rotary: 64})
	r.Free(qkv, angles)
	attn := v("attn", cols)
	do(backend.Attention{Q: q, K: k, V: val, Y: attn, Heads: 4, KVHeads: 2, HeadDim: 64, Scale: 1})
	do(backend.StoreKV{K: k, V: val})
	r.Free(q, k, val)
	delta := v("delta", cols)
	do(backend.Linear{X: attn, W: 2, Bias: none, Y: delta})
	r.Free(attn)
	normed = v("normed", cols)
	do(backend.Norm{X: delta, Residual: x, W: 5, Y: normed})
	r.Free(delta)
	both := v("gate_up", 1024)
	do(backend.Linear{X: normed, W: 3, Bias: none, Y: both})
	r.Free(normed)
	act := v("act", 512)
	do(backend.GLU{X: both, Y: act})
	r.Free(both)
	down := v("down", cols)
	do(backend.Linear{X: act, W: 4, Bias: none, Y: down})
	r.Free(act)
	do(backend.Add{X: down, Into: x, Scale: none})
	r.Free(down)
	last, z := r.New("last", kernels.F32, backend.PerSample, cols), r.New("logits", kernels.F32, backend.PerSample, 1000)
	do(backend.Gather{X: x, Y: last})
	do(backend.Linear{X: last, W: 0, Bias: none, Y: z})
	do(backend.OutputRows{X: z})
	r.Free(x, last, z)
	p, err := r.Program()
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// TestActivations: which values of a layer have 16 bits.
func TestActivations(t *testing.T) {
	biased := func(_ *backend.Recorder, op backend.Op) backend.Op {
		if o, ok := op.(backend.Linear); ok && o.W == 1 {
			o.Bias = 7
			return o
		}
		return op
	}
	// other makes another op read the gates and ups.
	other := func(r *backend.Recorder, op backend.Op) backend.Op {
		if o, ok := op.(backend.GLU); ok {
			r.Do(backend.Softcap{X: o.X, Cap: 1})
		}
		return op
	}
	// after normalizes what is added to the residual stream in place.
	after := func(r *backend.Recorder, op backend.Op) backend.Op {
		if o, ok := op.(backend.Add); ok {
			r.Do(backend.Norm{X: o.X, Residual: backend.NoValue, W: 5, Y: o.X})
		}
		return op
	}
	const all = "qkv:bf16 q:bf16 delta:bf16 gate_up:bf16 down:bf16"
	for _, c := range []struct {
		name, device, linear string
		f, kv                kernels.Format
		change               func(*backend.Recorder, backend.Op) backend.Op
		want                 string
	}{
		{"own products", "h100", "", kernels.BF16, kernels.BF16, nil, all},
		{"cuBLASLt's", "h100", backend.CUBLASLt, kernels.BF16, kernels.BF16, nil, all},
		{"a bias", "h100", "", kernels.BF16, kernels.BF16, biased, all},
		{"a bias and cuBLASLt", "h100", backend.CUBLASLt, kernels.BF16, kernels.BF16, biased, "q:bf16 delta:bf16 gate_up:bf16 down:bf16"},
		{"pages in 8 bits", "a100-80g", "", kernels.Q8_0, kernels.F8E4M3, nil, strings.Replace(all, "q:bf16 ", "q:f16 ", 1)},
		{"pages in float32", "h100", "", kernels.BF16, kernels.F32, nil, strings.Replace(all, " q:bf16", "", 1)},
		{"weights in fp16", "h100", "", kernels.F16, kernels.F16, nil, "q:f16"},
		{"weights in fp8", "h100", "", kernels.F8E4M3, kernels.BF16, nil, all},
		{"weights in float32", "h100", "", kernels.F32, kernels.BF16, nil, "q:bf16"},
		{"another reader", "h100", "", kernels.BF16, kernels.BF16, other, "qkv:bf16 q:bf16 delta:bf16 down:bf16"},
		{"a norm in place", "h100", "", kernels.BF16, kernels.BF16, after, "qkv:bf16 q:bf16 delta:bf16 gate_up:bf16"},
	} {
		l, err := newLayout(on(t, c.device, backend.Graphs{}).facts, backend.Settings{Linear: c.linear})
		if err != nil {
			t.Fatal(err)
		}
		p := dense(t, c.f, c.kv, c.change)
		before := slices.Clone(p.Values)
		backend.StoreActivations(l, p)
		var got []string
		for i, v := range p.Values {
			if v.Format != before[i].Format {
				got = append(got, v.Name+":"+v.Format.String())
			}
		}
		if s := strings.Join(got, " "); s != c.want {
			t.Errorf("%s: %s, want %s", c.name, s, c.want)
		}
		if err := l.Runs(p.Weights, p); err != nil {
			t.Errorf("%s: %v", c.name, err)
		}
	}
}

// TestActivationsOfExperts: the sum of experts is bf16 where the results of both their products are.
func TestActivationsOfExperts(t *testing.T) {
	for _, c := range []struct {
		f           kernels.Format
		activations string
		want        kernels.Format
	}{
		{kernels.BF16, "", kernels.BF16}, {kernels.MXFP4, "", kernels.BF16}, {kernels.F8E4M3, "", kernels.BF16},
		{kernels.F16, "", kernels.F32}, {kernels.F32, "", kernels.F32}, {kernels.F8E4M3, backend.FP8Activations, kernels.F32},
	} {
		l, err := newLayout(on(t, "h100", backend.Graphs{}).facts, backend.Settings{Activations: c.activations})
		if err != nil {
			t.Fatal(err)
		}
		p := &backend.Program{Bucket: backend.Bucket{Tokens: 8, Seqs: 1, Samples: 1}, Weights: layer(t, c.f, kernels.BF16, 8).Weights}
		r := backend.Record(p)
		x, y := r.New("x", kernels.F32, backend.PerToken, 256), r.New("y", kernels.F32, backend.PerToken, 256)
		ids, shares := r.New("ids", kernels.I32, backend.PerToken, 2), r.New("shares", kernels.F32, backend.PerToken, 2)
		r.Do(backend.Experts{X: x, Ids: ids, Weights: shares, Y: y, GateUp: 2, Down: 3, GateUpBias: backend.NoWeight, DownBias: backend.NoWeight, Top: 2, Width: 256})
		r.Do(backend.Add{X: y, Into: x, Scale: backend.NoWeight})
		r.Free(x, y, ids, shares)
		if got := l.Activations(p)[y]; got != c.want {
			t.Errorf("%v, activations %q: %v, want %v", c.f, c.activations, got, c.want)
		}
	}
}
