package compat

import (
	"strings"
	"testing"
)

// TestEncoder checks the budget of the encoder cache and the dummy items against vLLM 0.33's
// MultiModalBudget, worked out by hand, for the limits and sizes of a profile.
func TestEncoder(t *testing.T) {
	a100 := Device{"NVIDIA A100-SXM4-80GB", 79 << 30, 108, 8, 0}
	for _, c := range []struct {
		model  string
		rel    Release
		r      Request
		budget int64
		want   string // of the line
		basis  Basis
	}{
		{"gemma-4-26b-a4b", V033, Request{}, 2496, "2496 tokens, and profiled with 1 video items of the maximum feature size", Exact},
		{"gemma-4-26b-a4b", V033, Request{MaxNumBatchedTokens: 8192}, 8192, "8192 tokens, and profiled with 3 video items", Exact},
		{"gemma-4-26b-a4b", V033, Request{NoVideo: true, MaxNumBatchedTokens: 2048}, 2048, "2048 tokens, and profiled with 7 image items", Derived},
		{"gemma-4-26b-a4b", V033, Request{NoVideo: true, MaxNumBatchedTokens: 2048, ImageTokens: 1120}, 2048, "2048 tokens, and profiled with 1 image items", Derived},
		{"gemma-4-26b-a4b", V033, Request{NoImages: true}, 2496, "profiled with 1 video items", Exact},
		{"gemma-4-26b-a4b", V019, Request{}, 2496, "2496 tokens", Exact},
		{"gemma-4-26b-a4b", V033, Request{TextOnly: true}, 0, "", ""},
		{"qwen3.5-27b-fp8", V033, Request{MaxModelLen: 32768}, 16384, "16384 tokens, and profiled with 1 image items", Derived},
		{"qwen3.5-27b-fp8", V033, Request{MaxModelLen: 32768, NoVideo: true, MaxPixels: 1 << 20}, 2048, "2048 tokens, and profiled with 2 image items", Derived},
		{"qwen3.5-27b-fp8", V033, Request{MaxModelLen: 32768, MaxPixels: 1 << 20}, 12288, "12288 tokens, and profiled with 1 video items", Derived},
	} {
		o := must(t, Inputs{Release: c.rel, Config: config(t, c.model), Device: a100, Request: c.r})
		l, found := o.report().Find("encoder cache budget")
		if o.encoderBudget() != c.budget || found != (c.want != "") || !strings.Contains(l.Text, c.want) || l.Basis != c.basis {
			t.Errorf("%s %v %+v: %d, %q, %s; want %d, %q, %s", c.model, c.rel, c.r, o.encoderBudget(), l.Text, l.Basis, c.budget, c.want, c.basis)
		}
	}
}

// TestEncoderPass: the pass over a large image is the peak of the profiling step, its estimate widens
// the bound of the KV cache's memory, and smaller images leave more of it.
func TestEncoderPass(t *testing.T) {
	run := func(r Request) *outcome {
		r.MaxModelLen = 32768
		return must(t, Inputs{Release: V033, Config: config(t, "qwen3.5-27b-fp8"), Device: Device{"NVIDIA A100-SXM4-80GB", 79 << 30, 108, 8, 0}, Request: r})
	}
	large, small, text := run(Request{NoVideo: true}), run(Request{NoVideo: true, MaxPixels: 1 << 18}), run(Request{TextOnly: true})
	// 65,536 patches of 1,152, with an MLP of 4,304 wide, and 3 × 2 × 16 × 16 numbers of pixels each.
	if want := int64(65536) * ((2*1152+2*4304)*2 + 1536*4); total(large.activation.encoder) != want || !large.activation.encodes() {
		t.Errorf("the pass takes %d, want %d", total(large.activation.encoder), want)
	}
	if small.activation.encodes() || text.activation.encoder != nil || small.nonTorchBy >= large.nonTorchBy || small.available[0] <= large.available[0] || text.available[0] <= small.available[0] {
		t.Errorf("KV bytes %d, %d, %d; bounds %d, %d", large.available[0], small.available[0], text.available[0], large.nonTorchBy, small.nonTorchBy)
	}
	if l, _ := large.report().Find("available KV cache memory"); !strings.Contains(l.Note, "not known, MiB: the encoder's pass") {
		t.Errorf("note %q", l.Note)
	}
}
