package models

import (
	"slices"
	"testing"

	"vapp.dev/engine/backend"
)

// TestLlama4 checks the layers of the published configs: chunks, ropes, temperatures, experts.
func TestLlama4(t *testing.T) {
	for _, c := range []struct {
		name   string
		step   int // every step-th layer has experts
		normed bool
	}{{"meta-llama/Llama-4-Scout-17B-16E", 1, true}, {"meta-llama/Llama-4-Maverick-17B-128E", 2, false}} {
		e, ok, err := FindEntry(c.name)
		if err != nil || !ok {
			t.Fatal(err, ok)
		}
		cfg, err := e.Config()
		if err != nil {
			t.Fatal(err)
		}
		d, err := llama4Conditional(cfg)
		if err != nil {
			t.Fatal(err)
		}
		if d.window != 8192 || !d.chunked || d.unweighted != c.normed || d.dense.width != 16384 || d.prefix != "language_model.model." {
			t.Errorf("%s: %+v", c.name, d)
		}
		for i, kind := range d.types {
			full := i%4 == 3
			if (kind == fullAttention) != full || (d.ropeAt(i) == 1) != full {
				t.Errorf("%s: layer %d has %s and rope %d", c.name, i, kind, d.ropeAt(i))
			}
			if _, experts := d.feedForward(i).(mixture); experts != ((i+1)%c.step == 0) {
				t.Errorf("%s: layer %d has experts: %t", c.name, i, experts)
			}
		}
		if want := (backend.Temperature{Beta: 0.1, Every: 8192, Offset: 1}); d.ropes[1].temperature != want || d.ropes[0].temperature != (backend.Temperature{}) {
			t.Errorf("%s: temperatures %+v and %+v", c.name, d.ropes[0].temperature, d.ropes[1].temperature)
		}
	}
}

// TestLlama4GGUF checks the tensors of a file in llama.cpp's names: gate and up apart, [experts, out, in].
func TestLlama4GGUF(t *testing.T) {
	c := openTestdata(t, "tiny-llama4")
	cfg := c.Config()
	cfg.Architecture, cfg.Dialect = "Llama4ForCausalLM", "gguf"
	list, err := Tensors(cfg)
	if err != nil {
		t.Fatal(err)
	}
	shapes := map[string][]int64{}
	for _, x := range list {
		shapes[x.Name] = x.Shape
	}
	for name, want := range map[string][]int64{
		"model.layers.1.feed_forward.experts.gate_proj": {4, 16, 64}, "model.layers.1.feed_forward.experts.up_proj": {4, 16, 64}, "model.layers.1.feed_forward.experts.down_proj": {4, 64, 16},
		"model.layers.1.feed_forward.router.weight": {4, 64}, "model.layers.1.feed_forward.shared_expert.up_proj.weight": {16, 64}, "model.layers.0.feed_forward.down_proj.weight": {64, 40},
	} {
		if !slices.Equal(shapes[name], want) {
			t.Errorf("%s is %v, want %v", name, shapes[name], want)
		}
	}
}
