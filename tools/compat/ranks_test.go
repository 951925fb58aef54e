package compat

import (
	"strings"
	"testing"
)

// TestRanksAreNotExact checks that the bounds of several ranks include the spread of the runs that
// they are from, that the line names those runs, and that only the logged run's figures are exact.
func TestRanksAreNotExact(t *testing.T) {
	for _, s := range seeds(t) {
		if s.Seed == "" || s.Run == "" {
			continue
		}
		for _, ranks := range [][2]int{{1, 1}, {2, 1}, {4, 1}, {8, 1}, {1, 2}, {2, 2}} {
			i := s.inputs(t)
			i.Request.TensorParallel, i.Request.PipelineParallel, i.Request.KVBytes, i.Request.NonTorchBytes = ranks[0], ranks[1], 0, 0
			i.Device.TotalBytes = 1 << 40
			o, err := work(i)
			if err != nil {
				continue // the heads cannot be divided among this many ranks
			}
			r := o.report()
			line, ok := r.Find("available KV cache memory")
			if !ok {
				t.Fatalf("%s: no line", s.Run)
			}
			several := ranks[0]*ranks[1] > 1
			if band := line.Residual / 100 * line.Value; several && band < o.rankFit().spread()+gib(184<<20)+gib(total(o.unknown)) {
				t.Errorf("%s %v: ±%.3f GiB: %s", s.Run, ranks, band, line.Note)
			}
			if several != strings.Contains(line.Note, "several ranks outside of PyTorch: ") || (ranks[1] > 1) != strings.Contains(line.Note, "between stages") {
				t.Errorf("%s %v: %s", s.Run, ranks, line.Note)
			}
			logged := o.shape.family == qwen35 && ranks == [2]int{2, 1}
			for _, key := range []string{"attention block size", "mamba page padding", "activation peak", "CPU blocks", "model loading"} {
				if l, ok := r.Find(key); ok && l.Basis == Exact && several && !logged {
					t.Errorf("%s %v: %s is exact", s.Run, ranks, key)
				}
			}
			if several && !logged && o.arithmetic() == Exact {
				t.Errorf("%s %v: what follows is exact", s.Run, ranks)
			}
			if g, ok := r.Find("graph memory"); ok && (ranks[1] > 1 || ranks[0] > 2) && g.Residual < 100 {
				t.Errorf("%s %v: graphs ±%v %%", s.Run, ranks, g.Residual)
			}
		}
	}
}

// TestMeasuredRanks checks that a measured value has no band of several ranks.
func TestMeasuredRanks(t *testing.T) {
	i := Inputs{Release: V019, Config: config(t, "meta-llama/Llama-3.1-8B-Instruct"), Device: Device{"x", 80 << 30, 132, 9, 0}, Request: Request{MaxModelLen: 8192, TensorParallel: 2, NonTorchBytes: 3 << 30}}
	l, _ := must(t, i).report().Find("available KV cache memory")
	if band := l.Residual / 100 * l.Value; band > 0.1 || strings.Contains(l.Note, "outside of PyTorch") {
		t.Errorf("±%.3f GiB: %s", band, l.Note)
	}
}

// TestStagePeaks checks activation by stage: sampling is on the last alone, and V0 has one figure.
func TestStagePeaks(t *testing.T) {
	i := Inputs{Release: V019, Config: config(t, "meta-llama/Llama-3.1-8B-Instruct"), Device: Device{"x", 80 << 30, 132, 9, 0}, Request: Request{MaxModelLen: 8192, PipelineParallel: 3}}
	o := must(t, i)
	const hidden = 8192 * 4096 * 2
	for stage, want := range []int64{total(o.activation.text) + 4*hidden, total(o.activation.text) + 4*hidden, total(o.activation.sampler) + 2*hidden} {
		if n := o.stagePeak(stage).peak(); n != want+cublasHopper {
			t.Errorf("stage %d: %d bytes, want %d", stage, n, want+cublasHopper)
		}
	}
	i.Release = V07
	o = must(t, i)
	if o.stagePeak(0).peak() != o.activation.peak() {
		t.Errorf("vllm-0.7's stages differ")
	}
	i.Release, i.Config = V019, config(t, "gpt-oss-20b")
	if o = must(t, i); o.stagePeak(0).peak() < o.activation.peak() {
		t.Errorf("gpt-oss's text step is not known, and its first stage takes %d bytes", o.stagePeak(0).peak())
	}
}
