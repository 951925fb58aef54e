package ref

import (
	"slices"

	"vapp.dev/engine/backend"
	"vapp.dev/kernels"
	"vapp.dev/kernels/ref"
)

type conv struct{ backend.Conv }

// units returns the number of sequences: the tokens of a sequence depend on each other.
func (o conv) units(l *launch) int { return l.b.Seqs }
func (o conv) run(l *launch, _, seq int) error {
	first, last := int(l.s.First[seq]), int(l.s.First[seq+1])
	if first == last {
		return nil
	}
	n, w := l.cols(o.X), l.vector(o.W)
	bias := make([]float32, n)
	if o.Biased {
		bias = l.vector(o.Bias)
	}
	c, stored, _ := l.state(o.Class, o.Layer, seq)
	keep, start := o.Kernel-1, int(l.s.Positions[first])
	own := inputs{stored, c.State, n}
	marks := l.snapshots(o.Class, o.Layer, seq)
	state := make([]float32, keep*n) // [channel][keep]
	if marks.begin == nil {
		own.read(state, keep, start)
	} else {
		inputs{marks.begin, c.State, n}.read(state, keep, start)
		own.write(state, keep, start)
	}
	for t := first; t < last; t++ {
		x, y := rowOf(l.floats(o.X), t, n), rowOf(l.floats(o.Y), t, n)
		for ch := range y {
			y[ch] = ref.Conv(w[ch*o.Kernel:(ch+1)*o.Kernel], state[ch*keep:(ch+1)*keep], rounded(c.State.ConvFormat, x[ch]), bias[ch])
		}
		end := start + t - first + 1
		if t >= last-c.State.ConvRows {
			own.write(state, keep, end)
		}
		if page := marks.at(end); page != nil {
			inputs{page, c.State, n}.write(state, keep, end)
		}
	}
	return nil
}

// inputs is the part of a state with the last inputs of a convolution of n columns.
type inputs struct {
	stored []byte
	shape  *backend.StateShape
	n      int
}

// at returns the input of a position, in a state that ends before end.
func (i inputs) at(pos, end, keep int) []byte {
	if rows := i.shape.ConvRows; rows > keep {
		pos %= rows
	} else {
		pos -= end - rows
	}
	return i.stored[i.shape.ConvFormat.Bytes(int64(pos*i.n)):]
}

// read loads the last keep inputs before end into state [n][keep]; those before position 0
// are zeros.
func (i inputs) read(state []float32, keep, end int) {
	row := make([]float32, i.n)
	for k := range keep {
		if pos := end - keep + k; pos >= 0 {
			ref.Dequantize(i.shape.ConvFormat, i.at(pos, end, keep), row)
			for ch, v := range row {
				state[ch*keep+k] = v
			}
		}
	}
}

// write stores the last keep inputs. Those before position 0 are stored as zeros if rows are
// in order.
func (i inputs) write(state []float32, keep, end int) {
	row := make([]float32, i.n)
	for k := range keep {
		pos := end - keep + k
		if pos < 0 && i.shape.ConvRows > keep {
			continue
		}
		for ch := range row {
			row[ch] = state[ch*keep+k]
		}
		ref.Quantize(i.shape.ConvFormat, row, i.at(pos, end, keep))
	}
}

// snapshots are the pages from which a step reads, and to which it stores, snapshots of a
// sequence's state in one layer.
type snapshots struct {
	begin []byte // nil: the sequence's own state
	pages [backend.SnapshotStores][]byte
	after [backend.SnapshotStores]int
}

func (l *launch) snapshots(class, layer, seq int) (m snapshots) {
	i := l.e.p.Snapshots(class)
	if i < 0 {
		return m
	}
	c := l.e.p.Classes[i]
	table := l.s.Pages[i][seq*c.MaxPages:][:c.MaxPages]
	page := func(n int32) []byte {
		if n < 0 {
			return nil
		}
		return l.d.arenas[backend.KV][c.Address(n)+c.KOffset(layer):][:c.State.Bytes()]
	}
	m.begin = page(table[0])
	for k := range m.pages {
		m.pages[k], m.after[k] = page(table[1+2*k]), int(table[2+2*k])
	}
	return m
}

// at returns the page to store the state after the first n tokens to, or nil.
func (m *snapshots) at(n int) []byte {
	for k, page := range m.pages {
		if page != nil && m.after[k] == n {
			return page
		}
	}
	return nil
}

// rounded returns x rounded to format f, as it is stored, so that chunk borders do not change
// results.
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

// units returns the number of value heads of all sequences.
func (o deltaNet) units(l *launch) int { return l.b.Seqs * o.ValueHeads }
func (o deltaNet) run(l *launch, _, i int) error {
	seq, h := i/o.ValueHeads, i%o.ValueHeads
	first, last := int(l.s.First[seq]), int(l.s.First[seq+1])
	if first == last {
		return nil
	}
	m := l.matrix(o.Class, o.Layer, seq, h)
	state := m.begin()
	keys, group := o.KeyHeads*o.KeyDim, o.ValueHeads/o.KeyHeads
	for t := first; t < last; t++ {
		x, ba := rowOf(l.floats(o.QKV), t, l.cols(o.QKV)), rowOf(l.floats(o.BA), t, 2*o.ValueHeads)
		ref.Delta(ref.DeltaArgs{
			Q: rowOf(x, h/group, o.KeyDim), K: rowOf(x[keys:], h/group, o.KeyDim), V: rowOf(x[2*keys:], h, o.ValueDim),
			B: ba[h], A: ba[o.ValueHeads+h], ALog: l.vector(o.ALog)[h], Bias: l.vector(o.DtBias)[h],
			State: state, Y: rowOf(rowOf(l.floats(o.Y), t, l.cols(o.Y)), h, o.ValueDim),
		})
		m.store(t, state)
	}
	return nil
}

// matrixState is the matrix of one head of a sequence's state in a layer, in the copies and snapshots
// that a step reads and stores.
type matrixState struct {
	l                  *launch
	shape              *backend.StateShape
	copies             []float32
	marks              snapshots
	head, size         int // of all heads: the head's index, the numbers of its matrix
	first, last, start int // tokens of the step, and the position of the first
}

func (l *launch) matrix(class, layer, seq, head int) matrixState {
	c, _, all := l.state(class, layer, seq)
	first := int(l.s.First[seq])
	return matrixState{
		l: l, shape: c.State, copies: all, marks: l.snapshots(class, layer, seq), head: head, size: c.State.Rows * c.State.Cols,
		first: first, last: int(l.s.First[seq+1]), start: int(l.s.Positions[first]),
	}
}

// after returns the copy with the matrix after a position.
func (m matrixState) after(pos int) []float32 {
	all := int(m.shape.MatrixBytes() / 4)
	return rowOf(m.copies[pos%m.shape.Copies*all:][:all], m.head, m.size)
}

// marked returns the matrix in the page of a snapshot.
func (m matrixState) marked(page []byte) []float32 {
	return rowOf(floats(page[m.shape.ConvBytes():]), m.head, m.size)
}

// begin returns the matrix before the step.
func (m matrixState) begin() []float32 {
	state := make([]float32, m.size)
	if m.marks.begin != nil {
		copy(state, m.marked(m.marks.begin))
	} else if m.start > 0 {
		copy(state, m.after(m.start-1))
	}
	return state
}

// store stores the matrix after token t where a later step reads it.
func (m matrixState) store(t int, state []float32) {
	at := m.start + t - m.first
	if t == m.last-1 || m.shape.Copies > 1 && slices.Contains(m.l.s.Rows[:m.l.b.Samples], int32(t)) {
		copy(m.after(at), state)
	}
	if page := m.marks.at(at + 1); page != nil {
		copy(m.marked(page), state)
	}
}

type mamba2 struct{ backend.Mamba2 }

// units returns the number of heads of all sequences.
func (o mamba2) units(l *launch) int { return l.b.Seqs * o.Heads }
func (o mamba2) run(l *launch, _, i int) error {
	seq, h := i/o.Heads, i%o.Heads
	if l.s.First[seq] == l.s.First[seq+1] {
		return nil
	}
	m := l.matrix(o.Class, o.Layer, seq, h)
	state := m.begin()
	inner := o.Heads * o.HeadDim
	for t := m.first; t < m.last; t++ {
		x := rowOf(l.floats(o.X), t, l.cols(o.X))
		ref.Mamba2(ref.Mamba2Args{
			X: rowOf(x, h, o.HeadDim), B: rowOf(x[inner:], 0, o.StateDim), C: rowOf(x[inner:], 1, o.StateDim),
			Dt: rowOf(l.floats(o.Dt), t, o.Heads)[h], ALog: l.vector(o.ALog)[h], Bias: l.vector(o.DtBias)[h], D: l.vector(o.D)[h],
			State: state, Y: rowOf(rowOf(l.floats(o.Y), t, inner), h, o.HeadDim),
		})
		m.store(t, state)
	}
	return nil
}
