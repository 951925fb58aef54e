package compat

import (
	"errors"
	"math"
	"testing"

	"vapp.dev/engine/checkpoint"
	"vapp.dev/engine/models"
)

// FuzzReport checks that no config and request cause a panic, an endless loop, or a figure that is
// negative or no number.
func FuzzReport(f *testing.F) {
	for n, s := range seeds(f) {
		i := s.inputs(f)
		f.Add([]byte(i.Config.Raw), byte(n), i.Request.TensorParallel, i.Request.MaxModelLen, i.Request.MaxNumBatchedTokens, i.Request.BlockSize, i.Request.Speculative.Tokens, i.Device.TotalBytes)
	}
	for n, p := range publishedRuns(f) {
		f.Add([]byte(p.inputs(f).Config.Raw), byte(4+n*9), p.Request.TensorParallel, p.Request.MaxModelLen, p.Request.MaxNumBatchedTokens, 0, p.Request.Speculative.Tokens, int64(80<<30))
	}
	entries, err := models.Catalogue()
	if err != nil {
		f.Fatal(err)
	}
	seen := map[string]bool{}
	for _, e := range entries {
		c, err := e.Config()
		if err != nil {
			f.Fatal(err)
		}
		if !seen[c.Architecture] {
			f.Add([]byte(c.Raw), byte(4), 1, 4096, 0, 0, 0, int64(800<<30))
		}
		seen[c.Architecture] = true
	}
	f.Fuzz(func(t *testing.T, raw []byte, pick byte, ranks, length, tokens, block, spec int, total int64) {
		c, err := checkpoint.ParseConfig("config.json", raw)
		if err != nil {
			return
		}
		i := Inputs{Release: Releases()[int(pick)%len(Releases())], Config: c}
		i.Device = Device{Name: "x", TotalBytes: total, SMs: 1 + int(pick), Major: []int{7, 8, 8, 9, 12}[int(pick/6)%5]}
		i.Request = Request{MaxModelLen: length, MaxNumBatchedTokens: tokens, BlockSize: block, TensorParallel: ranks, TextOnly: pick&8 != 0}
		if pick&16 != 0 {
			i.Request.TensorParallel, i.Request.PipelineParallel = 1, ranks
		}
		if spec != 0 {
			i.Request.Speculative = Speculative{[]string{"mtp", "ngram"}[pick&1], spec}
		}
		if pick&32 != 0 {
			i.Request.Quantization = "fp8"
		}
		if pick&64 != 0 {
			i.Request.KVBytes = total
		}
		i.Request.Cudagraph.Estimate = pick&128 != 0
		r, err := Make(i)
		sane(t, r, err)
		if x, err := IdealSequences(c, ranks, spec, max(0, total), length); err == nil && (x < 0 || math.IsNaN(x)) {
			t.Errorf("%v ideal sequences", x)
		}
	})
}

func sane(t *testing.T, r Report, err error) {
	t.Helper()
	var refused *Error
	var short *DoesNotFitError
	switch {
	case errors.As(err, &refused):
		if refused.Field == "" || refused.Msg == "" {
			t.Errorf("%#v has no place", refused)
		}
	case errors.As(err, &short):
		if short.Need < 0 || short.Longest < 0 || short.Longest >= short.MaxModelLen && short.Longest > 0 {
			t.Errorf("%#v", short)
		}
	case err != nil:
		t.Errorf("%T %v is not typed", err, err)
	default:
		for _, l := range r.Lines {
			if math.IsNaN(l.Value) || math.IsInf(l.Value, 0) || l.Value < 0 || l.Residual < 0 || l.Text == "" || l.Basis == "" {
				t.Errorf("%+v", l)
			}
		}
	}
}

// BenchmarkMake measures the share of vapp plan's limit of 100 ms.
func BenchmarkMake(b *testing.B) {
	for _, s := range seeds(b) {
		i := s.inputs(b)
		b.Run(s.Model, func(b *testing.B) {
			for b.Loop() {
				if _, err := Make(i); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
