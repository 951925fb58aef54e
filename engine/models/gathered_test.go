package models

import (
	"fmt"
	"testing"

	"vapp.dev/engine/backend"
)

// TestGatheredHeads checks what a rank holds and records where norms run over the heads of all ranks: its
// own rows of Q, K and V, whole norms, and the numbers of its columns. Four ranks share two key/value
// heads, so that each of these is gathered twice.
func TestGatheredHeads(t *testing.T) {
	specs := rankWeights(t, "tiny-olmo2")
	for name, want := range map[string][3]int{ // rows, columns, first row of the tensor
		"layers.0.q": {32, 64, 32}, "layers.0.k": {16, 64, 16}, "layers.0.v": {16, 64, 16}, "layers.0.q_norm": {1, 64, 0}, "layers.0.k_norm": {1, 32, 0},
	} {
		w := specs[name]
		if got := [3]int{w.Rows, w.Cols, w.Parts[0].Row0}; got != want {
			t.Errorf("%s is %v, want %v", name, got, want)
		}
	}
	if n := len(specs["layers.0.qkv"].Parts); n > 0 {
		t.Error("the rank holds qkv besides")
	}
	if c := specs["k_columns"].Parts[0].Values; len(c) != 16 || c[0] != 16 || c[15] != 31 {
		t.Errorf("the rank's columns of K are %v", c)
	}
	m, err := New(openTestdata(t, "tiny-olmo2"), Build{Shard: backend.Shard{Rank: 3, World: 4}})
	if err != nil {
		t.Fatal(err)
	}
	for _, w := range m.Weights() {
		var from []int
		for _, p := range w.Parts {
			from = append(from, p.Col0)
		}
		if w.Name == "layers.1.k_norm" && (w.Cols != 64 || fmt.Sprint(from) != "[0 0 16 16]") {
			t.Errorf("%s has %d columns, in parts from %v", w.Name, w.Cols, from)
		}
	}
	if n := len(ops[backend.AllGather](t, m)); n != 2*2+1 { // Q and K of two layers, logits
		t.Errorf("%d values are gathered", n)
	}
	for _, o := range ops[backend.Rope](t, m) {
		if o.Norm != nil {
			t.Errorf("heads of one rank are normalized: %+v", o.Norm)
		}
	}
}
