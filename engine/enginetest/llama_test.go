package enginetest

import (
	"math"
	"path/filepath"
	"slices"
	"testing"

	"vapp.dev/engine/checkpoint"
	"vapp.dev/kernels"
	"vapp.dev/kernels/ref"
)

// read returns all values of a tensor in Hugging Face order.
func read(t *testing.T, c *checkpoint.Checkpoint, name string) []float32 {
	t.Helper()
	info, ok := c.Tensor(name)
	if !ok {
		t.Fatalf("%s is missing", name)
	}
	raw := make([]byte, info.Bytes)
	// In two parts, split inside a head, to check that rows are placed by their number.
	cut := int(info.Rows()) / 3
	at := int64(cut) * info.RowBytes()
	if err := c.ReadRows(name, cut, int(info.Rows())-cut, raw[at:]); err != nil {
		t.Fatal(err)
	}
	if err := c.ReadRows(name, 0, cut, raw[:at]); err != nil {
		t.Fatal(err)
	}
	out := make([]float32, info.Elements())
	ref.Dequantize(info.Format, raw, out)
	return out
}

// worst returns the largest |a−b| over the largest |a|.
func worst(a, b []float32) float64 {
	var diff, most float64
	for i := range a {
		diff = max(diff, math.Abs(float64(a[i]-b[i])))
		most = max(most, math.Abs(float64(a[i])))
	}
	return diff / most
}

func open(t *testing.T, path string) *checkpoint.Checkpoint {
	t.Helper()
	c, err := checkpoint.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

var toys = map[string]Llama{
	"default":       {},
	"tied-bf16":     {Tied: true, DType: kernels.BF16, Seed: 3},
	"sharded-f16":   {Shards: 3, DType: kernels.F16, AttentionBias: true, MLPBias: true},
	"llama3-scaled": {RopeScaling: &checkpoint.RopeScaling{Type: "llama3", Factor: 8, LowFreqFactor: 1, HighFreqFactor: 4, OriginalMaxPositionEmbeddings: 64}},
	"linear-scaled": {RopeScaling: &checkpoint.RopeScaling{Type: "linear", Factor: 2}},
}

func TestWriteLlama(t *testing.T) {
	for name, o := range toys {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			if err := WriteLlama(dir, o); err != nil {
				t.Fatal(err)
			}
			c := open(t, dir)
			weights, err := o.Weights()
			if err != nil {
				t.Fatal(err)
			}
			if len(c.Tensors()) != len(o.Layout()) {
				t.Errorf("%d tensors, want %d", len(c.Tensors()), len(o.Layout()))
			}
			for _, want := range o.Layout() {
				if _, err := c.Want(want.Name, want.Shape...); err != nil {
					t.Fatal(err)
				}
				if d := worst(weights[want.Name], read(t, c, want.Name)); d > 1.0/256 {
					t.Errorf("%s is off by %v", want.Name, d)
				}
			}
			if got := c.EOSTokenIDs(); !slices.Equal(got, []int{319}) {
				t.Errorf("EOS %v", got)
			}
			if s := c.SpecialTokens(); s.BOS != (checkpoint.Token{ID: 318, Text: "<|bos|>"}) || s.EOS.ID != 319 {
				t.Errorf("special tokens %+v", s)
			}
			if c.ChatTemplate() != ChatTemplate {
				t.Errorf("template %q", c.ChatTemplate())
			}
		})
	}
}

// TestWriteGGUF checks that both file formats of a toy give the same model: the same order of Q
// and K rows, the same rope and the same vocabulary.
func TestWriteGGUF(t *testing.T) {
	bound := map[kernels.Format]float64{
		kernels.F32: 0, kernels.F16: 1e-3, kernels.BF16: 1.0 / 256, kernels.Q8_0: 1.0 / 200, kernels.Q4_0: 0.13, kernels.Q4_1: 0.08,
	}
	for f, most := range bound {
		for name, o := range toys {
			t.Run(name+"/"+f.String(), func(t *testing.T) {
				path := filepath.Join(t.TempDir(), "toy.gguf")
				if err := WriteGGUF(path, o, GGUF{Format: func(string) kernels.Format { return f }}); err != nil {
					t.Fatal(err)
				}
				c := open(t, path)
				weights, err := o.Weights()
				if err != nil {
					t.Fatal(err)
				}
				for _, want := range o.Layout() {
					if _, err := c.Want(want.Name, want.Shape...); err != nil {
						t.Fatal(err)
					}
					if d := worst(weights[want.Name], read(t, c, want.Name)); d > most {
						t.Errorf("%s is off by %v", want.Name, d)
					}
				}
				sameFacts(t, o, c)
			})
		}
	}
}

func sameFacts(t *testing.T, o Llama, c *checkpoint.Checkpoint) {
	t.Helper()
	want, err := o.Config()
	if err != nil {
		t.Fatal(err)
	}
	got := c.Config()
	wf, err := want.RopeInvFreq()
	if err != nil {
		t.Fatal(err)
	}
	gf, err := got.RopeInvFreq()
	if err != nil {
		t.Fatal(err)
	}
	if d := worst(wf, gf); d > 1e-6 {
		t.Errorf("rope frequencies differ by %v", d)
	}
	if got.NumLayers != want.NumLayers || got.HeadDim != want.HeadDim || got.NumKVHeads != want.NumKVHeads ||
		got.VocabSize != want.VocabSize || got.TieWordEmbeddings != want.TieWordEmbeddings || got.RMSNormEps != want.RMSNormEps ||
		got.AttentionBias != want.AttentionBias || got.MLPBias != want.MLPBias || got.BosTokenID != want.BosTokenID {
		t.Errorf("GGUF config %+v\nwant %+v", got, want)
	}
	if !slices.Equal(c.EOSTokenIDs(), want.EosTokenIDs) {
		t.Errorf("EOS %v, want %v", c.EOSTokenIDs(), want.EosTokenIDs)
	}
}

// TestWriteGGUFBlocks reads the formats that hold random blocks.
func TestWriteGGUFBlocks(t *testing.T) {
	o := Llama{Hidden: 256, Intermediate: 512, Heads: 8, HeadDim: 32}
	formats := GGUF{Format: func(name string) kernels.Format {
		if name == "model.layers.1.mlp.down_proj.weight" {
			return kernels.Q6_K
		}
		return kernels.Q4_K
	}}
	path := filepath.Join(t.TempDir(), "toy.gguf")
	if err := WriteGGUF(path, o, formats); err != nil {
		t.Fatal(err)
	}
	c := open(t, path)
	for name, want := range map[string]kernels.Format{
		"model.layers.1.mlp.down_proj.weight": kernels.Q6_K, "model.layers.0.self_attn.q_proj.weight": kernels.Q4_K,
	} {
		info, _ := c.Tensor(name)
		if info.Format != want {
			t.Errorf("%s is %v, want %v", name, info.Format, want)
		}
		var sum, square float64
		x := read(t, c, name)
		for _, v := range x {
			sum += float64(v)
			square += float64(v) * float64(v)
		}
		n := float64(len(x))
		if mean, dev := sum/n, math.Sqrt(square/n); math.Abs(mean) > 0.001 || dev < 0.015 || dev > 0.025 {
			t.Errorf("%s: mean %v, deviation %v", name, mean, dev)
		}
	}
	if err := WriteGGUF(path, Llama{}, formats); err == nil {
		t.Error("rows of 64 were stored in blocks of 256")
	}
}
