package cuda

import (
	"errors"
	"strings"
	"testing"

	"vapp.dev/engine/backend"
	"vapp.dev/engine/backend/devices"
	"vapp.dev/kernels"
)

func on(t *testing.T, device string, g backend.Graphs) layout {
	t.Helper()
	d, err := devices.Find(device)
	if err != nil {
		t.Fatal(err)
	}
	l, err := newLayout(d.Facts(name), backend.Settings{Graphs: g})
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// onFP8 returns a layout with FP8 activations.
func onFP8(t *testing.T, device string) layout {
	t.Helper()
	l := on(t, device, backend.Graphs{})
	l, err := newLayout(l.facts, backend.Settings{Activations: backend.FP8Activations})
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func TestWeight(t *testing.T) {
	bf := backend.WeightSpec{Name: "w", Rows: 100, Cols: 64, Source: kernels.BF16, Use: backend.Multiply, Parts: []backend.Part{{Rows: 100}}}
	fp8 := bf
	fp8.Target, fp8.Scaling = kernels.F8E4M3, backend.PerChannel
	mx := bf
	mx.Source, mx.Experts = kernels.MXFP4, 3
	block := bf
	block.Source, block.Scaling, block.Rows, block.Cols, block.Parts = kernels.F8E4M3, backend.PerBlock, 300, 256, []backend.Part{{Rows: 200}, {Rows: 100}}
	stack := bf
	stack.Source, stack.Experts, stack.Cols = kernels.F32, 3, 30
	odd := bf
	odd.Cols = 40
	table := bf
	table.Use = backend.Lookup
	coded := table
	coded.Source, coded.Cols = kernels.Q4_K, 256
	vector := backend.WeightSpec{Name: "v", Rows: 1, Cols: 10, Source: kernels.BF16, Use: backend.Vector}
	for _, c := range []struct {
		device string
		w      backend.WeightSpec
		bytes  int64
		kernel string
	}{
		{"a100-80g", bf, 112 * 64 * 2, "linear_bf16"},
		{"v100-32g", bf, 112 * 64 * 2, "linear_f16"},
		{"h100", fp8, 112*64 + 512, "linear_f8_e4m3"},
		{"b200", mx, 11520, "linear_mxfp4"},              // 3·112·34 = 11,424
		{"h100", block, 304*256 + 256, "linear_f8_e4m3"}, // (2+1)·2 scales
		{"h100", stack, 3*100*30*4 + 96, "experts_f32"},  // by rows
		{"h100", odd, 112 * 64 * 2, "linear_bf16"},       // whole steps,
		{"h100", table, 100 * 64 * 2, "embed_bf16"},
		{"h100", coded, 112 * 144, "embed_packed_q4_k"},
		{"h100", vector, 256, "vector"},
	} {
		p, err := on(t, c.device, backend.Graphs{}).Weight(c.w)
		if err != nil || p.Bytes != c.bytes || p.Kernel != c.kernel {
			t.Errorf("%s: %d bytes, %s (%v), want %d, %s", c.device, p.Bytes, p.Kernel, err, c.bytes, c.kernel)
		}
	}
	for w, want := range map[*backend.WeightSpec]string{&fp8: "linear_f8_e4m3_x8", &block: "linear_f8_e4m3_x8", &bf: "linear_bf16", &mx: "linear_mxfp4", &table: "embed_bf16"} {
		p, err := onFP8(t, "h100").Weight(*w)
		if other, _ := on(t, "h100", backend.Graphs{}).Weight(*w); err != nil || p.Kernel != want || p.Bytes != other.Bytes {
			t.Errorf("activations in fp8: %d bytes, %s (%v), want %d, %s", p.Bytes, p.Kernel, err, other.Bytes, want)
		}
	}
	odd.Source = kernels.MXFP4
	if _, err := on(t, "h100", backend.Graphs{}).Weight(odd); !errors.Is(err, backend.ErrUnsupported) {
		t.Errorf("rows of 40 in blocks of 32: %v", err)
	}
}

// TestWorkspace: ops share one workspace, and a shape that no kernel supports is rejected.
func TestWorkspace(t *testing.T) {
	l := on(t, "a100-80g", backend.Graphs{})
	p := &backend.Program{Name: "p", Bucket: backend.Bucket{Tokens: 8, Seqs: 4, Samples: 4}}
	p.Weights = []backend.WeightSpec{{Name: "w", Rows: 32, Cols: 64, Use: backend.Multiply}}
	r := backend.Record(p)
	x, y := r.New("x", kernels.F32, backend.PerToken, 64), r.New("y", kernels.F32, backend.PerToken, 32)
	r.Do(backend.Linear{X: x, W: 0, Bias: backend.NoWeight, Y: y})
	r.Free(x, y)
	p, err := r.Program()
	if err != nil {
		t.Fatal(err)
	}
	if n, err := l.Workspace(p); err != nil || n != counters+8*64*2+256 { // one tile of rows and their sums

		t.Errorf("%d bytes, %v", n, err)
	}
	wide := *p
	wide.Ops = []backend.Op{backend.Attention{Heads: 1, KVHeads: 1, HeadDim: 1024}}
	c := lowering{l: l, p: &wide, v: variant{rows: 8}}
	if _, err := c.workspaceEnd(wide.Ops[0]); !errors.Is(err, backend.ErrUnsupported) {
		t.Error(err)
	}
}

func TestRefusals(t *testing.T) {
	for _, f := range []backend.Facts{{}, {Capability: "8.0"}} {
		_, err := newLayout(f, backend.Settings{Variant: "avx2"})
		if !errors.Is(err, backend.ErrUnsupported) {
			t.Errorf("%+v: %v", f, err)
		}
	}
	for _, c := range []struct{ capability, activations, want string }{
		{"8.6", "fp8", "compute capability 8.6, have no 8-bit floats: those of 8.9 and newer do"},
		{"gfx942", "fp8", "is not CUDA's"},
		{"9.0", "int8", "activations int8: unsupported: they are fp8"},
	} {
		_, err := newLayout(backend.Facts{Device: "a device", Capability: c.capability}, backend.Settings{Activations: c.activations})
		if !errors.Is(err, backend.ErrUnsupported) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%+v: %v", c, err)
		}
	}
	for _, w := range []backend.WeightSpec{
		{Name: "w", Rows: 32, Cols: 64, Source: kernels.F8E5M2, Scaling: backend.PerChannel, Use: backend.Multiply},
		{Name: "w", Rows: 32, Cols: 64, Source: kernels.F8E4M3, Scaling: backend.PerGroup, GroupSize: 32, Use: backend.Multiply},
	} {
		if _, err := onFP8(t, "l40s").Weight(w); !errors.Is(err, backend.ErrUnsupported) || !strings.Contains(err.Error(), "weight w with fp8 activations") {
			t.Errorf("%v %v: %v", w.Source, w.Scaling, err)
		}
	}
	l := on(t, "v100-32g", backend.Graphs{})
	if err := l.Runs(nil, &backend.Program{Name: "p"}); !errors.Is(err, backend.ErrUnsupported) || !strings.Contains(err.Error(), l.facts.PlanOnly) {
		t.Error(err)
	}
	if err := on(t, "h100", backend.Graphs{}).Runs(nil, &backend.Program{Shard: backend.Shard{World: 2}}); err == nil || !strings.Contains(err.Error(), "2 ranks: unsupported: it is a single device") {
		t.Error(err)
	}
}

// TestGraphs compares the fitted formula with a log it was fitted to: 67 sizes of a model of
// 16 layers took 0.31 GiB, for one set of step buffers. Decode steps that are captured whole
// are added.
func TestGraphs(t *testing.T) {
	p := &backend.Program{Bucket: backend.Bucket{Tokens: 512, Seqs: 256, Samples: 256}}
	for range 16 {
		p.Ops = append(p.Ops, backend.Attention{})
	}
	sizes := []int{1, 2, 4}
	for n := 8; n <= 512; n += 8 {
		sizes = append(sizes, n)
	}
	for mode, steps := range map[string]int64{"piecewise": 67, "full_decode_only": 35, "full_and_piecewise": 67 + 35, "none": 0} {
		r := backend.Reservation{Programs: []*backend.Program{p}}
		r.Arenas[backend.StepIO] = 6 << 20
		lines := map[string]backend.Overhead{}
		for _, o := range on(t, "a100-80g", backend.Graphs{Mode: mode, Sizes: sizes}).Overheads(r) {
			lines[o.Name] = o
		}
		g, there := lines["graphs"]
		if want := 2 * steps * 31 * (1 << 30) / 100 / 67; there != (steps > 0) || there && !g.Fitted || g.Bytes < want || g.Bytes > want*106/100+granule {
			t.Errorf("%s: %+v, want about %d bytes", mode, g, want)
		}
		if c, s := lines["step copies"], lines["staging"]; !c.Host || c.Bytes != 6<<20 || !s.Host || s.Bytes != stagingBytes || lines["context"].Host || lines["modules"].Host {
			t.Errorf("%s: %+v", mode, lines)
		}
	}
}

// TestRefusedFormats checks that weights in formats with grids are refused with the format and what to do,
// whether their rows are looked up or multiplied.
func TestRefusedFormats(t *testing.T) {
	l := on(t, "h100", backend.Graphs{})
	for _, f := range []kernels.Format{
		kernels.IQ1_S, kernels.IQ1_M, kernels.IQ2_XXS, kernels.IQ2_XS, kernels.IQ2_S, kernels.IQ3_XXS, kernels.IQ3_S, kernels.IQ4_XS, kernels.TQ1_0, kernels.TQ2_0,
	} {
		for weight, table := range map[string]kernels.Format{"weight table": f, "weight w": kernels.BF16} {
			p := &backend.Program{Name: "p", Vocab: 1000, Bucket: backend.Bucket{Tokens: 8, Seqs: 4, Samples: 4}}
			p.Weights = []backend.WeightSpec{
				{Name: "table", Rows: 1000, Cols: 256, Source: table, Use: backend.Lookup},
				{Name: "w", Rows: 32, Cols: 256, Source: f, Use: backend.Multiply},
			}
			r := backend.Record(p)
			ids, x, y := r.New("ids", kernels.I32, backend.PerToken, 1), r.New("x", kernels.F32, backend.PerToken, 256), r.New("y", kernels.F32, backend.PerToken, 32)
			r.Do(backend.Tokens{Out: ids})
			r.Do(backend.Embed{Ids: ids, Table: 0, Y: x, Scale: 1})
			r.Do(backend.Linear{X: x, W: 1, Bias: backend.NoWeight, Y: y})
			r.Free(ids, x, y)
			p, err := r.Program()
			if err != nil {
				t.Fatal(err)
			}
			err = l.Runs(p.Weights, p)
			if !errors.Is(err, backend.ErrUnsupported) || !strings.Contains(err.Error(), weight) || !strings.Contains(err.Error(), f.String()+": serve it on a cpu, or a file in another format") {
				t.Errorf("%v: %v", f, err)
			}
		}
	}
}
