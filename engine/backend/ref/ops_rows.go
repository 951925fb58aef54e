package ref

import (
	"fmt"

	"vapp.dev/engine/backend"
	"vapp.dev/kernels/ref"
)

type tokens struct{ backend.Tokens }

func (tokens) units(*launch) int { return 1 }
func (o tokens) run(l *launch, _, _ int) error {
	for t, out := 0, l.ints(o.Out); t < len(out); t++ {
		id := l.s.Tokens[t]
		if id < 0 {
			id = max(0, l.sampled[-1-id])
		}
		if int(id) >= l.e.p.Vocab {
			return fmt.Errorf("row %d: the other set sampled %d, the vocabulary has %d", t, id, l.e.p.Vocab)
		}
		out[t] = id
	}
	return nil
}

type storeTokens struct{ backend.StoreTokens }

func (storeTokens) units(*launch) int { return 1 }
func (o storeTokens) run(l *launch, _, _ int) error {
	for t, id := range l.ints(o.Ids) {
		page, slot := l.slot(o.Class, t, nil)
		l.plane(o.Class, page)[slot] = id
	}
	return nil
}

type embed struct{ backend.Embed }

func (o embed) units(l *launch) int { return l.rowsOf(o.Y) }
func (o embed) run(l *launch, _, t int) error {
	w, id := l.d.weights[o.Table], int(l.ints(o.Ids)[t])-o.Row0
	y := rowOf(l.floats(o.Y), t, l.cols(o.Y))
	if id < 0 || id >= l.e.p.Weights[o.Table].Rows {
		clear(y)
		return nil
	}
	ref.Embed(w.Format, w.data, int32(id), o.Scale, y)
	return nil
}

type norm struct{ backend.Norm }

func (o norm) units(l *launch) int { return l.rowsOf(o.Y) }
func (o norm) run(l *launch, _, r int) error {
	n := l.cols(o.Y)
	var residual []float32
	if o.Residual != backend.NoValue {
		residual = rowOf(l.floats(o.Residual), r, n)
	}
	x, y := rowOf(l.floats(o.X), r, n), rowOf(l.floats(o.Y), r, n)
	if o.Segment == 0 || o.Segment == n {
		o.one(l, x, residual, y)
	} else {
		if residual != nil {
			ref.Add(residual, x)
			x = residual
		}
		for i := 0; i < n; i += o.Segment {
			o.one(l, x[i:i+o.Segment], nil, y[i:i+o.Segment])
		}
	}
	for i := range y {
		if o.Scale != 0 {
			y[i] *= o.Scale
		}
		if o.Gated {
			y[i] *= ref.SiLU(l.floats(o.Gate)[r*n+i])
		}
	}
	return nil
}

// one normalises one segment.
func (o norm) one(l *launch, x, residual, y []float32) {
	var w, b []float32
	if o.W != backend.NoWeight {
		w = l.vector(o.W)
	}
	if !o.Plain {
		ref.NormOffset(x, residual, w, o.Offset, o.Eps, y)
		return
	}
	if residual != nil {
		ref.Add(residual, x)
		x = residual
	}
	if o.Bias != backend.NoWeight {
		b = l.vector(o.Bias)
	}
	ref.LayerNorm(x, w, b, o.Eps, y)
}

type linear struct{ backend.Linear }

// linearUnit is how many output features are one unit of work.
const linearUnit = 16

func (o linear) units(l *launch) int {
	if l.rowsOf(o.Y) == 0 {
		return 0
	}
	return (l.cols(o.Y) + linearUnit - 1) / linearUnit
}

func (o linear) run(l *launch, worker, i int) error {
	w, in, out, work := l.d.weights[o.W], l.cols(o.X), l.cols(o.Y), l.workspace(worker)
	a := ref.LinearArgs{
		Rows: l.rowsOf(o.Y), In: in, Out: out, X: l.floats(o.X), W: w.data, Format: w.Format, Scales: w.scales, Y: l.floats(o.Y),
		From: i * linearUnit, To: min((i+1)*linearUnit, out), Row: take[float32](work, ref.Together*in, 4),
	}
	if o.Bias != backend.NoWeight {
		a.Bias = l.vector(o.Bias)
	}
	if w.round {
		ref.LinearRounded(a, w.to, take[float32](work, w.to.WorkSize(in), 4))
		return nil
	}
	ref.Linear(a)
	return nil
}

type gather struct{ backend.Gather }

func (o gather) units(l *launch) int { return l.b.Samples }
func (o gather) run(l *launch, _, r int) error {
	n := elementBytes(l.e.p.Values[o.X].Format, l.cols(o.X))
	copy(rowOf(l.bytes(o.Y), r, n), rowOf(l.bytes(o.X), int(l.s.Rows[r]), n))
	return nil
}

type gatherLast struct{ backend.GatherLast }

func (o gatherLast) units(l *launch) int { return l.b.Seqs }
func (o gatherLast) run(l *launch, _, seq int) error {
	n := elementBytes(l.e.p.Values[o.X].Format, l.cols(o.X))
	if last := int(l.s.First[seq+1]) - 1; last >= int(l.s.First[seq]) {
		copy(rowOf(l.bytes(o.Y), seq, n), rowOf(l.bytes(o.X), last, n))
	}
	return nil
}

type concat struct{ backend.Concat }

func (o concat) units(l *launch) int { return l.rowsOf(o.Y) }
func (o concat) run(l *launch, _, r int) error {
	y := rowOf(l.floats(o.Y), r, l.cols(o.Y))
	n := copy(y, rowOf(l.floats(o.A), r, l.cols(o.A)))
	copy(y[n:], rowOf(l.floats(o.B), r, l.cols(o.B)))
	return nil
}

type reorder struct{ backend.Reorder }

func (o reorder) units(l *launch) int { return l.rowsOf(o.Y) }
func (o reorder) run(l *launch, _, r int) error {
	x, y := rowOf(l.floats(o.X), r, l.cols(o.X)), rowOf(l.floats(o.Y), r, l.cols(o.Y))
	for i, from := range l.vector(o.Order) {
		y[i] = x[int(from)]
	}
	return nil
}

type outputRows struct{ backend.OutputRows }

func (o outputRows) units(l *launch) int { return l.b.Samples }
func (o outputRows) run(l *launch, _, r int) error {
	n := l.cols(o.X)
	copy(rowOf(l.s.Outputs, r, n), rowOf(l.floats(o.X), r, n))
	return nil
}
