package cpu

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"vapp.dev/engine/backend"
	"vapp.dev/internal/goldentest"
	"vapp.dev/kernels"
)

// load is a step whose bytes are counted: rows of all sequences together, and the positions that
// attention reads for all of them.
type load struct {
	name            string
	rows, positions int64
}

// traffic is bytes that threads read from memory, and how many of them from another node's.
type traffic struct{ near, far int64 }

func (t traffic) String() string {
	mb := func(n int64) string { return fmt.Sprintf("%.1f", float64(n)/1e6) }
	return mb(t.near+t.far) + " | " + mb(t.far)
}

// llama1b returns the products of a layer of Llama-3.2-1B in bf16, all of its layers and its head.
func llama1b() (specs []backend.WeightSpec) {
	const layers, hidden, qkv, mlp, vocab = 16, 2048, 3072, 8192, 128256
	for i := range layers {
		at := fmt.Sprintf("%d.", i)
		specs = append(specs, product(at+"qkv", qkv, hidden, kernels.BF16), product(at+"o", hidden, hidden, kernels.BF16),
			product(at+"gate_up", 2*mlp, hidden, kernels.BF16), product(at+"down", hidden, mlp, kernels.BF16))
	}
	return append(specs, product("head", vocab, hidden, kernels.BF16))
}

// TestNodeBytes counts what a step of Llama-3.2-1B reads from near and from far memory on two nodes
// of 32 threads, from the layout, and compares the table with design.md; -update writes it there.
//
// Weights are read once for each chunk of rows. Before, each was where the thread ran that packed
// it: half of it far. K and V alternate between nodes: half is far. Each node reads the inputs of
// a product once, as long as they stay in its caches, and half of them was written by the other.
func TestNodeBytes(t *testing.T) {
	const kvBytes, kvHeads, headDim, layers = 2, 8, 64, 16
	l, err := newLayout(nodesOf(32, 32), backend.Settings{})
	if err != nil {
		t.Fatal(err)
	}
	specs := llama1b()
	list, bytes := placed(t, l, specs)
	regions := l.regions(specs, list, bytes)
	var table strings.Builder
	fmt.Fprintf(&table, "| step | weights, MB | far before | far now | K and V, MB | far | inputs, MB | far |\n|---|---|---|---|---|---|---|---|\n")
	for _, s := range []load{{"decode, 1 sequence at 2,048", 1, 2048}, {"decode, 16 sequences at 2,048", 16, 16 * 2048}, {"prefill of 512", 512, 512 / 2}} {
		var weights, inputs traffic
		var before int64
		for i, w := range specs {
			reads := int64(1)
			if c := int64(l.Chunk(int(s.rows))); c > 0 && (strings.HasSuffix(w.Name, "gate_up") || strings.HasSuffix(w.Name, "down")) {
				reads = (s.rows + c - 1) / c
			}
			out, of := far(l, specs[i:i+1], list[i:i+1], regions)
			weights.far, weights.near, before = weights.far+reads*out, weights.near+reads*(of-out), before+reads*of/2
			rows := s.rows
			if w.Name == "head" {
				rows = min(rows, s.positions/2048+1)
			}
			inputs.far, inputs.near = inputs.far+rows*int64(w.Cols)*4, inputs.near+rows*int64(w.Cols)*4
		}
		kv := s.positions * layers * 2 * kvHeads * headDim * kvBytes
		fmt.Fprintf(&table, "| %s | %.1f | %.1f | %.1f | %v | %v |\n", s.name, float64(weights.near+weights.far)/1e6, float64(before)/1e6, float64(weights.far)/1e6, traffic{kv - kv/2, kv / 2}, inputs)
		if weights.far*50 > before {
			t.Errorf("%s: %d bytes of weights are far, %d were: more than a fiftieth", s.name, weights.far, before)
		}
	}
	const page, from, to = "../../../kernels/cpu/design.md", "<!-- counted by TestNodeBytes of engine/backend/cpu -->\n", "<!-- end -->\n"
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	head, rest, ok := strings.Cut(string(text), from)
	_, tail, ok2 := strings.Cut(rest, to)
	if !ok || !ok2 {
		t.Fatalf("%s has no table between %q and %q", page, from, to)
	}
	goldentest.Compare(t, page, head+from+"\n"+table.String()+"\n"+to+tail)
}
