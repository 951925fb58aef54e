package cuda

import (
	"testing"

	"vapp.dev/engine/backend"
	"vapp.dev/kernels"
	"vapp.dev/kernels/cuda/cost"
)

// TestLaunches: a step's launches are those of its list, with the step's rows in grids and arguments, and each has a
// cost. A step that the program does not hold is refused.
func TestLaunches(t *testing.T) {
	l := on(t, "h100", backend.Graphs{})
	p := layer(t, kernels.MXFP4, kernels.BF16, 512)
	list, err := l.Launches(p)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ tokens, seqs int }{{1, 1}, {7, 7}, {40, 40}, {300, 2}, {512, 1}} {
		got, err := list(c.tokens, c.seqs, c.seqs)
		if err != nil {
			t.Fatal(err)
		}
		counter := cost.Counter{}
		for left, i := c.tokens, 0; i < c.seqs; i++ {
			n := left / (c.seqs - i)
			counter.Rows, left = append(counter.Rows, cost.Row{Count: n}), left-n
		}
		products := 0
		for _, n := range got {
			w, err := counter.Count(n)
			if err != nil {
				t.Errorf("%+v: %v", c, err)
			}
			if o, ok := p.Ops[n.Op].(backend.Linear); ok && w.Weights > 0 {
				products++
				rows := float64(backend.Bucket{Tokens: c.tokens, Seqs: c.seqs, Samples: c.seqs}.Rows(p.Values[o.Y].Rows))
				if weight := p.Weights[o.W]; w.Flops != 2*rows*float64(weight.Rows*weight.Cols) {
					t.Errorf("%+v: %s has %g operations", c, n.Kernel, w.Flops)
				}
			}
		}
		if products != 3 {
			t.Errorf("%+v: %d products in %d launches", c, products, len(got))
		}
	}
	for _, c := range [][3]int{{0, 0, 0}, {513, 1, 1}, {65, 65, 65}} {
		if got, err := list(c[0], c[1], c[2]); err == nil {
			t.Errorf("%v: %d launches", c, len(got))
		}
	}
}
