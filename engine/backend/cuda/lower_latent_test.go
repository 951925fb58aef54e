package cuda

import (
	"strings"
	"testing"
	"unsafe"

	"vapp.dev/engine/backend"
	"vapp.dev/kernels"
	"vapp.dev/kernels/cuda"
)

// latentLayer records a layer of latent attention with 512 latent and 64 rotated numbers.
func latentLayer(t *testing.T, f, kv kernels.Format, heads, tokens int) *backend.Program {
	t.Helper()
	const rank, rotary, nope, value = 512, 64, 128, 128
	class := backend.KVClass{Name: "full", Format: kv, BlockSize: 16, Layers: 1, KVHeads: 1, HeadDim: rank, KeyDim: rotary, MaxPages: 512, PagesPerSlab: 1, Plane: true}
	class.SlabBytes = class.PageBytes()
	p := &backend.Program{Name: "p", Vocab: 100, Classes: []backend.KVClass{class}, Bucket: backend.Bucket{Tokens: tokens, Seqs: min(tokens, 64), Samples: min(tokens, 64)}}
	stack := func(name string, rows, cols int) backend.WeightSpec {
		return backend.WeightSpec{Name: name, Experts: heads, Rows: rows, Cols: cols, Source: f, Use: backend.Multiply, Parts: []backend.Part{{Tensor: name, Rows: rows, Stride: rows, Format: f}}}
	}
	p.Weights = []backend.WeightSpec{
		stack("keys", rank, nope), stack("values", value, rank),
		{Name: "norm", Rows: 1, Cols: rank, Source: kernels.F32, Use: backend.Vector}, {Name: "freq", Rows: 1, Cols: rotary / 2, Source: kernels.F32, Use: backend.Vector},
	}
	r := backend.Record(p)
	v := func(f kernels.Format, cols int) backend.Value { return r.New("v", f, backend.PerToken, cols) }
	f32 := kernels.F32
	q, down, angles, query := v(f32, heads*(nope+rotary)), v(f32, rank+rotary), v(f32, rotary), v(f32, heads*(rank+rotary))
	k, latent, sums, y := v(kv, rotary), v(kv, rank), v(f32, heads*rank), v(f32, heads*value)
	for _, op := range []backend.Op{
		backend.Angles{InvFreq: 3, Scale: 1, Y: angles},
		backend.LatentRope{Q: q, KV: down, Angles: angles, Query: query, K: k, V: latent, Norm: 2, Eps: 1e-6, Heads: heads, Nope: nope, Rank: rank, Rotary: rotary},
		backend.HeadLinear{X: q, W: 0, Y: query, Heads: heads},
		backend.Attention{Q: query, K: k, V: latent, Y: sums, Heads: heads, KVHeads: 1, HeadDim: rank, Latent: rotary, Scale: 1}, backend.StoreKV{K: k, V: latent},
		backend.HeadLinear{X: sums, W: 1, Y: y, Heads: heads},
	} {
		r.Do(op)
	}
	r.Free(q, down, angles, query, k, latent, sums, y)
	p, err := r.Program()
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// TestLowerLatent checks the kernels of latent attention, by device, heads and rows.
func TestLowerLatent(t *testing.T) {
	for _, c := range []struct {
		device        string
		f, kv         kernels.Format
		heads, tokens int
		want          string
		splits        int
	}{
		{"h100", kernels.BF16, kernels.BF16, 16, 1, "latent_rope_bf16 head_linear_bf16_16 attention_bf16_latent_few attention_join store_kv_16 head_linear_bf16_16", 64},
		{"h100", kernels.BF16, kernels.BF16, 128, 8, "latent_rope_bf16 head_linear_bf16_16 attention_bf16_latent_many attention_join store_kv_16 head_linear_bf16_16", 16},
		{"l40s", kernels.F16, kernels.F8E4M3, 16, 512, "latent_rope_e4m3 head_linear_f16_64 attention_e4m3_latent_narrow store_kv_8 head_linear_f16_64", 1},
		{"a100-80g", kernels.BF16, kernels.F16, 16, 512, "latent_rope_f16 head_linear_bf16_64 attention_f16_latent_many store_kv_16 head_linear_bf16_64", 1},
		{"h100", kernels.F32, kernels.F32, 16, 512, "latent_rope_f32 head_linear_f32 attention_f32 store_kv_32 head_linear_f32", 1},
	} {
		l, p := on(t, c.device, backend.Graphs{}), latentLayer(t, c.f, c.kv, c.heads, c.tokens)
		if err := l.Runs(p.Weights, p); err != nil {
			t.Fatal(err)
		}
		n, err := l.Workspace(p)
		if err != nil {
			t.Fatal(err)
		}
		list, err := l.lower(p, variant{rows: c.tokens}, noAddresses(p))
		if err != nil {
			t.Fatal(err)
		}
		var names []string
		for _, n := range list[1:] { // after angles
			k := l.kernels[n.kernel]
			if len(n.args) != k.Args || n.threads[0] > k.Threads || n.shared > k.Shared || n.shared > l.shared() {
				t.Errorf("%s: %+v; listed %+v", c.device, n, k)
			}
			if strings.HasPrefix(n.kernel, "attention_") && n.blocks[2] != c.splits && n.kernel != "attention_join" {
				t.Errorf("%s: %s has %d splits, want %d", c.device, n.kernel, n.blocks[2], c.splits)
			}
			if strings.HasPrefix(n.kernel, "store_kv_") && (*cuda.StoreArgs)(unsafe.Pointer(&n.args[0])).Latent != 1 {
				t.Errorf("%s: %s stores whole keys", c.device, n.kernel)
			}
			names = append(names, n.kernel)
		}
		if got := strings.Join(names, " "); got != c.want {
			t.Errorf("%s, %d heads, %d rows: %s, want %s", c.device, c.heads, c.tokens, got, c.want)
		}
		if c.splits > 1 && n < int64(4*c.tokens*c.heads*c.splits*514) {
			t.Errorf("%s: a workspace of %d bytes for %d splits of %d rows", c.device, n, c.splits, c.tokens*c.heads)
		}
	}
}
