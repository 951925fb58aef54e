package ref

import (
	"slices"

	"vapp.dev/engine/backend"
	"vapp.dev/kernels"
	"vapp.dev/kernels/ref"
)

type conv struct{ backend.Conv }

// A unit is a sequence: its tokens follow one another.
func (o conv) units(l *launch) int { return l.b.Seqs }
func (o conv) run(l *launch, _, seq int) error {
	first, last := int(l.s.First[seq]), int(l.s.First[seq+1])
	if first == last {
		return nil
	}
	n, w := l.cols(o.X), l.vector(o.W)
	c, stored, _ := l.state(o.Class, o.Layer, seq)
	f, keep, rows := c.State.ConvFormat, o.Kernel-1, c.State.ConvRows
	start := int(l.s.Positions[first])
	at := func(pos, end int) []byte { // of the input of pos, in a step that ends before end
		if rows > keep {
			pos %= rows
		} else {
			pos -= end - rows
		}
		return stored[f.Bytes(int64(pos*n)):]
	}
	state, row := make([]float32, keep*n), make([]float32, n) // [channel][keep]
	for k := range keep {
		if pos := start - keep + k; pos >= 0 {
			ref.Dequantize(f, at(pos, start), row)
			for ch, v := range row {
				state[ch*keep+k] = v
			}
		}
	}
	for t := first; t < last; t++ {
		x, y := rowOf(l.floats(o.X), t, n), rowOf(l.floats(o.Y), t, n)
		for ch := range y {
			y[ch] = ref.Conv(w[ch*o.Kernel:(ch+1)*o.Kernel], state[ch*keep:(ch+1)*keep], rounded(f, x[ch]))
		}
		if rows > keep {
			ref.Quantize(f, x, at(start+t-first, 0))
		}
	}
	if rows > keep {
		return nil
	}
	for k := range keep {
		for ch := range row {
			row[ch] = state[ch*keep+k]
		}
		ref.Quantize(f, row, stored[f.Bytes(int64(k*n)):])
	}
	return nil
}

// rounded is x as format f keeps it, so that a chunk's border changes nothing.
func rounded(f kernels.Format, x float32) float32 {
	if f == kernels.F32 {
		return x
	}
	var b [4]byte
	y := []float32{x}
	ref.Quantize(f, y, b[:f.Bytes(1)])
	ref.Dequantize(f, b[:], y)
	return y[0]
}

type deltaNet struct{ backend.DeltaNet }

// A unit is a value head of a sequence.
func (o deltaNet) units(l *launch) int { return l.b.Seqs * o.ValueHeads }
func (o deltaNet) run(l *launch, _, i int) error {
	seq, h := i/o.ValueHeads, i%o.ValueHeads
	first, last := int(l.s.First[seq]), int(l.s.First[seq+1])
	if first == last {
		return nil
	}
	c, _, all := l.state(o.Class, o.Layer, seq)
	start, size := int(l.s.Positions[first]), int(c.State.MatrixBytes()/4)
	after := func(pos int) []float32 { // the copy that is the state after pos
		return rowOf(all[pos%c.State.Copies*size:][:size], h, o.KeyDim*o.ValueDim)
	}
	state := make([]float32, o.KeyDim*o.ValueDim)
	if start > 0 {
		copy(state, after(start-1))
	}
	keys, group := o.KeyHeads*o.KeyDim, o.ValueHeads/o.KeyHeads
	for t := first; t < last; t++ {
		x, ba := rowOf(l.floats(o.QKV), t, l.cols(o.QKV)), rowOf(l.floats(o.BA), t, 2*o.ValueHeads)
		ref.Delta(ref.DeltaArgs{
			Q: rowOf(x, h/group, o.KeyDim), K: rowOf(x[keys:], h/group, o.KeyDim), V: rowOf(x[2*keys:], h, o.ValueDim),
			B: ba[h], A: ba[o.ValueHeads+h], ALog: l.vector(o.ALog)[h], Bias: l.vector(o.DtBias)[h],
			State: state, Y: rowOf(rowOf(l.floats(o.Y), t, l.cols(o.Y)), h, o.ValueDim),
		})
		if t == last-1 || c.State.Copies > 1 && slices.Contains(l.s.Rows[:l.b.Samples], int32(t)) {
			copy(after(start+t-first), state)
		}
	}
	return nil
}
