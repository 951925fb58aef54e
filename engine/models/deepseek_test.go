package models

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"vapp.dev/engine/backend"
	"vapp.dev/kernels"
)

// TestLatentPages checks that published models store the latent and the rotated key of a token, and
// that scores have the scale of their yarn.
func TestLatentPages(t *testing.T) {
	for _, x := range []struct {
		name   string
		layers int
		mscale float64
	}{{"DeepSeek-V2-Lite", 27, 0.1*0.707*math.Log(40) + 1}, {"DeepSeek-V3", 61, 0.1*math.Log(40) + 1}, {"Kimi-K2-Instruct", 61, 0.1*math.Log(32) + 1}} {
		m := publishedModel(t, x.name, Build{})
		want := backend.KVClass{Name: "full", Layers: x.layers, KVHeads: 1, HeadDim: 512, KeyDim: 64, BlockSize: 16, Format: kernels.BF16, Plane: true}
		if got := m.Classes(16, kernels.BF16); len(got) != 1 || fmt.Sprint(got[0]) != fmt.Sprint(want) {
			t.Errorf("%s: %+v, want %+v", x.name, got, want)
		} else if n := got[0].PageBytes(); n != int64(16*(x.layers*576*2+4)) { // 70,272 bytes a token in V3, and its id
			t.Errorf("%s: pages of %d bytes", x.name, n)
		}
		scale := x.mscale * x.mscale / math.Sqrt(192)
		for _, o := range ops[backend.Attention](t, m) {
			if o.Latent != 64 || math.Abs(float64(o.Scale)-scale) > 1e-7 {
				t.Fatalf("%s: %+v, want the scale %v", x.name, o, scale)
			}
		}
	}
}

// TestLatentRanks checks that ranks share the heads and hold the latents' weights whole.
func TestLatentRanks(t *testing.T) {
	specs := rankWeights(t, "tiny-deepseek-v3")
	for name, want := range map[string][4]int{ // rows, columns, first row or, transposed, column, matrices
		"layers.1.q_down": {32, 64, 0, 0}, "layers.1.q": {2 * 36, 32, 2 * 36, 0}, "layers.1.kv_down": {80, 64, 0, 0},
		"layers.1.keys": {64, 20, 0, 2}, "layers.1.values": {24, 64, 2*44 + 20, 2}, "layers.1.out": {64, 2 * 24, 0, 0},
	} {
		w := specs[name]
		if got := [4]int{w.Rows, w.Cols, w.Parts[0].Row0, w.Experts}; got != want {
			t.Errorf("%s is %v, want %v", name, got, want)
		}
	}
	if k := specs["layers.1.keys"].Parts[0]; !k.Transposed || k.Stride != 44 || k.Rows != 64 || k.Col0 != 2*44 {
		t.Errorf("keys are read from %+v", k)
	}
	var refused *UnsupportedError
	if _, err := New(openTestdata(t, "tiny-deepseek-v3"), Build{Shard: backend.Shard{World: 8}}); !errors.As(err, &refused) || !strings.Contains(err.Error(), "4 attention heads") {
		t.Errorf("8 ranks: %v", err)
	}
}

// TestLatentForms checks a draft pass of latent attention, and that kv_b_proj has no adapters.
func TestLatentForms(t *testing.T) {
	c := openTestdata(t, "tiny-deepseek-v3")
	d := openTestdata(t, "tiny-deepseek-v2")
	m, err := NewWithDraft(c, d, Build{Draft: 2})
	if err != nil {
		t.Fatal(err)
	}
	p, err := recordStep(m, kernels.BF16, bucket)
	if err != nil {
		t.Fatal(err)
	}
	drafts := 0
	for _, op := range p.Ops {
		if a, ok := op.(backend.Attention); ok && a.Draft != nil && a.Latent > 0 {
			drafts++
		}
	}
	if drafts != 4 {
		t.Errorf("%d layers of draft passes, want 2 of 2", drafts)
	}
	m, err = New(c, Build{LoRA: LoRA{Slots: 1, Rank: 8}})
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, of := range m.(*decoder).modules {
		if rest, ok := strings.CutPrefix(of.name, "model.layers.0.self_attn."); ok {
			names = append(names, rest)
		}
	}
	if want := []string{"q_a_proj", "q_b_proj", "kv_a_proj_with_mqa", "o_proj"}; !slices.Equal(names, want) {
		t.Errorf("adapted are %v, want %v", names, want)
	}
}

// TestMTPLayers checks that the layer for further tokens of V3 has no tensors in the list and may be in
// the file.
func TestMTPLayers(t *testing.T) {
	skip := laterLayers(alterConfig(t, "DeepSeek-V3", nil))
	for name, want := range map[string]bool{"model.layers.61.eh_proj.weight_scale_inv": true, "model.layers.60.mlp.gate.weight": false} {
		if skip(name) != want {
			t.Errorf("%s is skipped: %t", name, !want)
		}
	}
}
