package compat

import (
	"strings"
	"testing"
)

// TestRanksAreUnknown checks that the bounds of several ranks include the unknown memory, that the
// line names it, and that only the logged run's figures are exact.
func TestRanksAreUnknown(t *testing.T) {
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
			band := line.Residual / 100 * line.Value
			least, hidden := 0.0, gib(int64(o.r.MaxNumBatchedTokens)*o.shape.hidden*o.dtype)
			if ranks[0] > 1 {
				least += 0.5 + 0.125 + 0.125 + hidden
			}
			if ranks[1] > 1 {
				least += 0.5 + 2*hidden + gib(total(o.activation.sampler))
			}
			several := ranks[0]*ranks[1] > 1
			if band < least || strings.Contains(line.Note, "not known of several ranks") != several {
				t.Errorf("%s %v: ±%.3f GiB, unknown %.3f: %s", s.Run, ranks, band, least, line.Note)
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
