package backendtest

import (
	"fmt"
	"math"
	"testing"

	"vapp.dev/engine/backend"
	"vapp.dev/kernels"
	"vapp.dev/kernels/ref"
)

// conv tests Conv: every format of its state, odd numbers of columns, several chunkings, and
// steps that go back to before rejected proposals.
func (s *subject) conv(t *testing.T) {
	for i, f := range []kernels.Format{kernels.F32, kernels.BF16, kernels.F16} {
		for _, cols := range []int{1, 24, 100, 513}[i:] {
			for _, kernel := range []int{2, 4} {
				s.run(t, fmt.Sprintf("%v/%d columns, kernel of %d", f, cols, kernel), func(t *testing.T) {
					c, w, x := newConv(f, cols, kernel, 0)
					want, size := convOracle(c, f, w, x)
					c.test(t, s, want, func(seq, i int) float64 { return size[seq][i] / (1 << 20) })
				})
			}
		}
	}
	for _, drafts := range []int{0, 3} {
		s.run(t, fmt.Sprintf("checkpoints, %d proposals", drafts), func(t *testing.T) {
			for _, f := range []kernels.Format{kernels.F32, kernels.BF16} {
				c, _, _ := newConv(f, 100, 4, drafts)
				c.resume(t, s)
			}
		})
	}
	s.run(t, "proposals", func(t *testing.T) {
		const drafts = 3
		c, w, x := newConv(kernels.BF16, 48, 4, drafts)
		r := c.rig(t, s)
		plain := c.runs(r, []int{0}, []int{16})[0]
		want, size := convOracle(c, kernels.BF16, w, x)
		for i, y := range want[0] {
			if d := math.Abs(float64(plain[i] - y)); !(d <= size[0][i]/(1<<20)) {
				t.Fatalf("number %d: %v, want %v", i, plain[i], y)
			}
		}
		c.rollback(t, s, plain, drafts)
	})
}

// newConv returns a case, its weights and its inputs.
func newConv(f kernels.Format, cols, kernel, drafts int) (c *recurrent, w, x []float32) {
	c = &recurrent{lengths: []int{40, 33, 1, 2, 3}, most: 80, tensors: &tensors{}, width: cols}
	if drafts > 0 {
		c.lengths = []int{90, 90}
	}
	c.shape = backend.StateShape{ConvRows: kernel - 1 + drafts, ConvCols: cols, ConvFormat: f, Copies: 1 + drafts}
	w, x = normal(rng(9), cols*kernel, 1), c.inputs(10, cols, 1)
	table, weights := c.tensors.table("x", x, cols), c.tensors.vector("w", kernels.F32, w)
	c.record = func(rec *backend.Recorder) backend.Value {
		in := input(rec, table, cols)
		y := rec.New("y", kernels.F32, backend.PerToken, cols)
		rec.Do(backend.Conv{X: in, Y: y, W: weights, Kernel: kernel, Layer: 1})
		return y
	}
	return c, w, x
}

// convOracle returns the results of each sequence, and the sizes of their sums.
func convOracle(c *recurrent, f kernels.Format, w, x []float32) (want [][]float32, size [][]float64) {
	cols := c.width
	kernel := len(w) / cols
	for seq, n := range c.lengths {
		y, sizes, state := make([]float32, n*cols), make([]float64, n*cols), make([]float32, cols*(kernel-1))
		first := int(c.tokens(seq, 0, 1)[0])
		for t := range n {
			row := decode(f, encode(f, x[(first+t)*cols:(first+t+1)*cols]))
			for ch, v := range row {
				past, weights := state[ch*(kernel-1):(ch+1)*(kernel-1)], w[ch*kernel:(ch+1)*kernel]
				sum := math.Abs(float64(weights[kernel-1] * v))
				for k, p := range past {
					sum += math.Abs(float64(weights[k] * p))
				}
				sizes[t*cols+ch] = sum * (1 + sum)
				y[t*cols+ch] = ref.Conv(weights, past, v, 0)
			}
		}
		want, size = append(want, y), append(size, sizes)
	}
	return want, size
}
