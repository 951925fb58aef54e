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

func TestWeight(t *testing.T) {
	bf := backend.WeightSpec{Name: "w", Rows: 100, Cols: 64, Source: kernels.BF16, Use: backend.Multiply, Parts: []backend.Part{{Rows: 100}}}
	fp8 := bf
	fp8.Target, fp8.Scaling = kernels.F8E4M3, backend.PerChannel
	mx := bf
	mx.Source, mx.Experts = kernels.MXFP4, 3
	block := bf
	block.Source, block.Scaling, block.Rows, block.Cols, block.Parts = kernels.F8E4M3, backend.PerBlock, 300, 256, []backend.Part{{Rows: 200}, {Rows: 100}}
	vector := backend.WeightSpec{Name: "v", Rows: 1, Cols: 10, Source: kernels.BF16, Use: backend.Vector}
	for _, c := range []struct {
		device string
		w      backend.WeightSpec
		bytes  int64
		kernel string
	}{
		{"a100-80g", bf, 112 * 64 * 2, "linear.sm_80.bf16"},
		{"v100-32g", bf, 112 * 64 * 2, "linear.sm_70.f16"},
		{"a100-80g", fp8, 112*64 + 512, "linear.sm_80.f8_e4m3>bf16"},
		{"h100", fp8, 112*64 + 512, "linear.sm_90a.f8_e4m3"},
		{"h100", mx, 11520, "experts.sm_90a.mxfp4>bf16"}, // 3·112·34 = 11,424
		{"b200", mx, 11520, "experts.sm_100.mxfp4"},
		{"h100", block, 304*256 + 256, "linear.sm_90a.f8_e4m3"}, // (2+1)·2 scales
		{"h100", vector, 256, "vector"},
	} {
		p, err := on(t, c.device, backend.Graphs{}).Weight(c.w)
		if err != nil || p.Bytes != c.bytes || p.Kernel != c.kernel {
			t.Errorf("%s: %d bytes, %s (%v), want %d, %s", c.device, p.Bytes, p.Kernel, err, c.bytes, c.kernel)
		}
	}
	odd := bf
	odd.Source, odd.Cols = kernels.MXFP4, 40
	if _, err := on(t, "h100", backend.Graphs{}).Weight(odd); !errors.Is(err, backend.ErrUnsupported) {
		t.Errorf("rows of 40 in blocks of 32: %v", err)
	}
}

// TestWorkspace: the room of one op is the op's alone, and a shape no kernel has is
// refused.
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
	if n, err := l.Workspace(p); err != nil || n != 8*64*2+l.libraryRoom() {
		t.Errorf("%d bytes, %v", n, err)
	}
	wide := &backend.Program{Ops: []backend.Op{backend.Attention{Heads: 1, KVHeads: 1, HeadDim: 1024}}}
	if _, err := l.room(wide, wide.Ops[0]); !errors.Is(err, backend.ErrUnsupported) {
		t.Error(err)
	}
}

func TestRefusals(t *testing.T) {
	if _, err := (Opener{}).Probe(); !errors.Is(err, backend.ErrUnsupported) || !strings.Contains(err.Error(), "--gpu") {
		t.Error(err)
	}
	for _, f := range []backend.Facts{{}, {Capability: "8.0"}} {
		_, err := newLayout(f, backend.Settings{Variant: "avx2"})
		if !errors.Is(err, backend.ErrUnsupported) {
			t.Errorf("%+v: %v", f, err)
		}
	}
	l := on(t, "v100-32g", backend.Graphs{})
	if err := l.Runs(nil, &backend.Program{}); !errors.Is(err, backend.ErrUnsupported) || !strings.Contains(err.Error(), l.facts.PlanOnly) {
		t.Error(err)
	}
	if err := on(t, "h100", backend.Graphs{}).Runs(nil, &backend.Program{Shard: backend.Shard{World: 2}}); err == nil || !strings.Contains(err.Error(), "planned only") {
		t.Error(err)
	}
}

// TestGraphs holds the fitted rule against a log it was fitted on: 67 sizes of a
// model of 16 layers took 0.31 GiB.
func TestGraphs(t *testing.T) {
	p := &backend.Program{}
	for range 16 {
		p.Ops = append(p.Ops, backend.Attention{})
	}
	g := backend.Graphs{Mode: "piecewise", Sizes: make([]int, 67)}
	o := on(t, "a100-80g", g).Overheads(backend.Reservation{Programs: []*backend.Program{p}})
	if last := o[len(o)-1]; last.Name != "graphs" || !last.Fitted || last.Bytes < 31*(1<<30)/100 || last.Bytes > 33*(1<<30)/100 {
		t.Errorf("%+v", last)
	}
	if n := len(on(t, "a100-80g", backend.Graphs{Mode: "none", Sizes: []int{1}}).Overheads(backend.Reservation{Programs: []*backend.Program{p}})); n != 2 {
		t.Errorf("%d overheads without graphs", n)
	}
}
