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
		page, slot := l.slot(o.Class, t)
		l.plane(o.Class, page)[slot] = id
	}
	return nil
}

type embed struct{ backend.Embed }

func (o embed) units(l *launch) int { return l.b.Tokens }
func (o embed) run(l *launch, _, t int) error {
	w := l.d.weights[o.Table]
	ref.Embed(w.Format, w.data, l.ints(o.Ids)[t], o.Scale, rowOf(l.floats(o.Y), t, l.cols(o.Y)))
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
	ref.Norm(rowOf(l.floats(o.X), r, n), residual, l.vector(o.W), o.Eps, rowOf(l.floats(o.Y), r, n))
	return nil
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
	w, in, out := l.d.weights[o.W], l.cols(o.X), l.cols(o.Y)
	a := ref.LinearArgs{
		Rows: l.rowsOf(o.Y), In: in, Out: out, X: l.floats(o.X), W: w.data, Format: w.Format, Y: l.floats(o.Y),
		From: i * linearUnit, To: min((i+1)*linearUnit, out), Row: take[float32](l.room(worker), in, 4),
	}
	if o.Bias != backend.NoWeight {
		a.Bias = l.vector(o.Bias)
	}
	ref.Linear(a)
	return nil
}

type swiglu struct{ backend.GLU }

func (o swiglu) units(l *launch) int { return l.rowsOf(o.Y) }
func (o swiglu) run(l *launch, _, r int) error {
	n := l.cols(o.Y)
	x := rowOf(l.floats(o.X), r, 2*n)
	ref.SwiGLU(x[:n], x[n:], rowOf(l.floats(o.Y), r, n))
	return nil
}

type gather struct{ backend.Gather }

func (o gather) units(l *launch) int { return l.b.Samples }
func (o gather) run(l *launch, _, r int) error {
	n := elementBytes(l.e.p.Values[o.X].Format, l.cols(o.X))
	copy(rowOf(l.bytes(o.Y), r, n), rowOf(l.bytes(o.X), int(l.s.Rows[r]), n))
	return nil
}

// allReduce of one rank has nothing to add.
type allReduce struct{ backend.AllReduce }

func (allReduce) units(*launch) int           { return 0 }
func (allReduce) run(*launch, int, int) error { return nil }

// allGather of one rank is a copy.
type allGather struct{ backend.AllGather }

func (allGather) units(*launch) int { return 1 }
func (o allGather) run(l *launch, _, _ int) error {
	copy(l.bytes(o.Y), l.bytes(o.X))
	return nil
}
