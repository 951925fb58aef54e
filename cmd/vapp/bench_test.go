//go:build cgo && linux

package main

import (
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"testing"

	"vapp.dev/engine/backend"
	"vapp.dev/engine/checkpoint"
	"vapp.dev/kernels"
)

// TestBenchProfiles plans what make bench runs: models of 1 to 2 GB.
func TestBenchProfiles(t *testing.T) {
	paths, err := filepath.Glob("../../tests/bench/*.cue")
	if err != nil || len(paths) < 7 {
		t.Fatalf("%d profiles, %v", len(paths), err)
	}
	for _, path := range paths {
		p, err := benchOptions{prompt: 256, output: 48, streams: 16}.prepare(path)
		if err != nil {
			t.Errorf("%s: %v", path, err)
			continue
		}
		if b := p.Plan.Account.Reservation.Arenas[backend.Weights]; b < 1e9 || b > 2.1e9 {
			t.Errorf("%s: %d bytes of weights", path, b)
		}
		if err := p.Close(); err != nil {
			t.Error(err)
		}
	}
}

// TestBenchLayers plans a model cut to two of its eight layers.
func TestBenchLayers(t *testing.T) {
	bytes := map[int]int64{}
	for _, n := range []int{0, 2} {
		p, err := benchOptions{prompt: 16, output: 16, streams: 2, layers: n}.prepare("../../tests/bench/llama.cue")
		if err != nil {
			t.Fatal(err)
		}
		bytes[n] = p.Plan.Account.Reservation.Arenas[backend.Weights]
		if err := p.Close(); err != nil {
			t.Error(err)
		}
	}
	const layer = 2 * (2048*(2048+2*512+2048) + 3*2048*8192)
	if d := bytes[0] - bytes[2] - 6*layer; d < -4<<20 || d > 4<<20 {
		t.Errorf("two layers take %d bytes, all %d", bytes[2], bytes[0])
	}
	if _, err := (benchOptions{prompt: 16, output: 16, streams: 2, layers: 9}).prepare("../../tests/bench/llama.cue"); err == nil {
		t.Error("nine of eight layers were planned")
	}
}

// TestBenchCost counts by hand what a model of a plain weight, a head that is also
// looked up, two stacks, a window and a state asks for.
func TestBenchCost(t *testing.T) {
	weights := []backend.WeightSpec{
		{Rows: 10, Cols: 10, Use: backend.Multiply, Group: "attention"},
		{Rows: 100, Cols: 10, Use: backend.Multiply | backend.Lookup, Group: "embedding"},
		{Rows: 20, Cols: 10, Use: backend.Multiply, Experts: 8}, {Rows: 10, Cols: 10, Use: backend.Multiply, Experts: 8},
		{Rows: 1, Cols: 10, Use: backend.Vector},
	}
	r := backend.Reservation{
		Weights: weights, Packed: []backend.Packed{{Bytes: 200}, {Bytes: 2000}, {Bytes: 1600}, {Bytes: 800}, {Bytes: 40}},
		Programs: []*backend.Program{{Ops: []backend.Op{backend.Experts{GateUp: 2, Down: 3, Top: 2}}}},
		Classes: []backend.KVClass{
			{Format: kernels.F16, Layers: 2, KVHeads: 3, HeadDim: 8},
			{Format: kernels.F16, Layers: 1, KVHeads: 1, HeadDim: 8, KeyDim: 4, Window: 5},
			{Layers: 1, State: &backend.StateShape{ConvRows: 1, ConvCols: 4, ConvFormat: kernels.F32, Heads: 1, Rows: 2, Cols: 2}},
		},
	}
	c := costOf(r, 20)
	if got, want := c.prompt, 2.0*(100+8*300*2/8); got != want {
		t.Errorf("a prompt token takes %v operations, want %v", got, want)
	}
	if got, want := c.decode, c.prompt+2*1000; got != want {
		t.Errorf("a token takes %v operations, want %v", got, want)
	}
	perSeq := 2*20*3*16*2.0 + 5*12*2 + 2*(16+16)
	if got, want := c.step(1), 2200+2400*2/8+perSeq; got != want {
		t.Errorf("a step of one reads %v, want %v", got, want)
	}
	if got, want := c.step(2), 2200+2400*(1-0.75*0.75)+2*perSeq; math.Abs(got-want) > 1e-9 {
		t.Errorf("a step of two reads %v, want %v", got, want)
	}
}

// TestBenchCut shortens a config within its text part, and the lists for each layer.
func TestBenchCut(t *testing.T) {
	raw := `{"architectures":["X"],"text_config":{"num_hidden_layers":4,"layer_types":["a","b","c","d"],"hidden_size":8},"vision_config":{"num_hidden_layers":9}}`
	path, err := cut(checkpoint.Config{Dialect: "huggingface", Raw: []byte(raw), NumLayers: 4}, 3, t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	type part struct {
		Layers int      `json:"num_hidden_layers"`
		Types  []string `json:"layer_types"`
		Hidden int      `json:"hidden_size"`
	}
	var got struct{ Text_config, Vision_config part }
	if err := json.Unmarshal(data, &got); err != nil {
		t.Fatal(err)
	}
	if x := got.Text_config; x.Layers != 3 || len(x.Types) != 3 || x.Types[2] != "c" || x.Hidden != 8 || got.Vision_config.Layers != 9 {
		t.Errorf("cut to %s", data)
	}
	for _, c := range []checkpoint.Config{{Dialect: "gguf", NumLayers: 4}, {Dialect: "huggingface", Raw: []byte(raw), NumLayers: 2}} {
		if _, err := cut(c, 3, t.TempDir()); err == nil {
			t.Errorf("%+v was cut", c)
		}
	}
}
