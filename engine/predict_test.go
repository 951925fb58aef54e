package engine

import (
	"testing"

	"vapp.dev/engine/backend"
	"vapp.dev/engine/backend/cpu"
	"vapp.dev/engine/speed"
)

// TestPredictor predicts loads of a toy model with the rates of a table: more work takes longer, the steps
// are those of the scheduler, and every token is counted.
func TestPredictor(t *testing.T) {
	m, err := Inspect(Source{Path: "../tests/bench/speed/llama", Name: "llama", Format: "dummy"})
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	o := Options{MaxModelLen: 4096, MaxNumSeqs: 16, MaxNumBatchedTokens: 512, BlockSize: 16, KVFormat: m.Dtype, KVBytes: 1 << 30, ChunkedPrefill: true, Overlap: true}
	f := backend.Facts{Backend: "cpu", Device: "CPU", Cores: 2, Variants: []string{"avx512bf16", "generic"}}
	a, err := NewAccount(o, m, cpu.Opener{}, f)
	if err != nil {
		t.Fatal(err)
	}
	r, _, err := speed.Estimate(f, "avx512bf16", 2)
	if err != nil {
		t.Fatal(err)
	}
	p, err := NewPredictor(o, a, r)
	if err != nil {
		t.Fatal(err)
	}
	load := func(l Load) Forecast {
		t.Helper()
		f, err := p.Load(l)
		if err != nil || f.First <= 0 || f.Last < f.First {
			t.Fatalf("%+v: %+v, %v", l, f, err)
		}
		return f
	}
	one, long := load(Load{1, 512, 1}), load(Load{1, 2048, 1})
	if one.Steps != 1 || long.Steps != 4 || long.First < 4*one.First || one.Decode() != 0 {
		t.Errorf("512 tokens %+v, 2,048 %+v", one, long)
	}
	several := load(Load{16, 128, 8})
	// Every step takes four prompts at most, beside a token of each sequence that decodes.
	if several.Steps < 4+7 || several.After < 16*8/2 || several.After > 16*8-16 {
		t.Errorf("%+v", several)
	}
	if step := p.DecodeStep(1, 100); step <= 0 || p.DecodeStep(16, 100) <= step || p.DecodeStep(16, 4000) <= p.DecodeStep(16, 100) {
		t.Error("a larger step takes no longer")
	}
	if _, err := p.Load(Load{1, 5000, 1}); err == nil {
		t.Error("a prompt beyond the model length is predicted")
	}
	o.Drafts = 2
	if _, err := NewPredictor(o, a, r); err == nil {
		t.Error("speculation is predicted")
	}
}
