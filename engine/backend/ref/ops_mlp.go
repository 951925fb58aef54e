package ref

import (
	"vapp.dev/engine/backend"
	"vapp.dev/kernels/ref"
)

type glu struct{ backend.GLU }

func (o glu) units(l *launch) int { return l.rowsOf(o.Y) }
func (o glu) run(l *launch, _, r int) error {
	n := l.cols(o.Y)
	gated(o.Activation, rowOf(l.floats(o.X), r, 2*n), rowOf(l.floats(o.Y), r, n))
	return nil
}

// gated computes a gated activation of one row x [2·len(y)]. If gate and up alternate, it
// first separates them in x.
func gated(a backend.Activation, x, y []float32) {
	n := len(y)
	if a.Paired {
		apart := make([]float32, 2*n)
		for i := range n {
			apart[i], apart[n+i] = x[2*i], x[2*i+1]
		}
		x = apart
	}
	gate, up := x[:n], x[n:]
	switch {
	case a.Limit != 0 || a.Alpha != 0 || a.Shift != 0:
		ref.ClampedGLU(gate, up, a.Limit, a.Alpha, a.Shift, y)
	case a.Act == backend.GELUTanh:
		ref.GeGLU(gate, up, y)
	default:
		ref.SwiGLU(gate, up, y)
	}
}

type activate struct{ backend.Activate }

func (o activate) units(l *launch) int { return l.rowsOf(o.X) }
func (o activate) run(l *launch, _, r int) error {
	for i, x := range rowOf(l.floats(o.X), r, l.cols(o.X)) {
		y := ref.SiLU(x)
		switch o.Act {
		case backend.GELUTanh:
			y = ref.GELUTanh(x)
		case backend.GELU:
			y = ref.GELU(x)
		}
		l.floats(o.X)[r*l.cols(o.X)+i] = y
	}
	return nil
}

type softcap struct{ backend.Softcap }

func (o softcap) units(l *launch) int { return l.rowsOf(o.X) }
func (o softcap) run(l *launch, _, r int) error {
	x := rowOf(l.floats(o.X), r, l.cols(o.X))
	for i := range x {
		x[i] = ref.Softcap(x[i], o.Cap)
	}
	return nil
}

type addTo struct{ backend.Add }

func (o addTo) units(l *launch) int { return l.rowsOf(o.Into) }
func (o addTo) run(l *launch, _, r int) error {
	n := l.cols(o.Into)
	into := rowOf(l.floats(o.Into), r, n)
	ref.Add(into, rowOf(l.floats(o.X), r, n))
	if o.Scale != backend.NoWeight {
		s := l.vector(o.Scale)[0]
		for i := range into {
			into[i] *= s
		}
	}
	return nil
}

type gate struct{ backend.Gate }

func (o gate) units(l *launch) int { return l.rowsOf(o.X) }
func (o gate) run(l *launch, _, r int) error {
	n, wide := l.cols(o.X), l.cols(o.Gate.Gate)
	x, g := rowOf(l.floats(o.X), r, n), rowOf(l.floats(o.Gate.Gate), r, wide)
	for i := range x {
		x[i] *= ref.Sigmoid(g[min(i, wide-1)])
	}
	return nil
}

type route struct{ backend.Route }

func (o route) units(l *launch) int { return l.rowsOf(o.Logits) }
func (o route) run(l *launch, _, r int) error {
	with := ref.Router{Score: ref.Score(o.Score), Normalize: o.Normalize, Groups: o.Groups, TopGroups: o.TopGroups, GroupTop: o.GroupTop, Factor: o.Factor}
	if o.Scale != backend.NoWeight {
		with.Scale = l.vector(o.Scale)
	}
	if o.Corrected {
		with.Correction = l.vector(o.Correction)
	}
	with.Route(rowOf(l.floats(o.Logits), r, l.cols(o.Logits)), rowOf(l.ints(o.Ids), r, o.Top), rowOf(l.floats(o.Weights), r, o.Top))
	return nil
}

type experts struct{ backend.Experts }

func (o experts) units(l *launch) int { return l.rowsOf(o.X) }
func (o experts) run(l *launch, worker, r int) error {
	n, work := l.cols(o.X), l.workspace(worker)
	up, act, out := take[float32](work, 2*o.Width, 4), take[float32](work, o.Width, 4), take[float32](work, n, 4)
	row, round := take[float32](work, ref.Together*max(n, o.Width), 4), l.roundRow(work, o.Experts)
	x, y := rowOf(l.floats(o.X), r, n), rowOf(l.floats(o.Y), r, n)
	sum := make([]float64, n)
	for k, id := range rowOf(l.ints(o.Ids), r, o.Top) {
		l.expert(o.GateUp, o.GateUpBias, int(id), x, up, row, round)
		gated(o.Activation, up, act)
		l.expert(o.Down, o.DownBias, int(id), act, out, row, round)
		w := float64(rowOf(l.floats(o.Weights), r, o.Top)[k])
		for i, v := range out {
			sum[i] += w * float64(v)
		}
	}
	for i, s := range sum {
		y[i] = float32(s)
	}
	return nil
}

// roundRow returns memory for a row that is rounded for the weights of o; it is empty if no
// weight needs it.
func (l *launch) roundRow(work *workspace, o backend.Experts) []float32 {
	n := 0
	if w := l.d.weights[o.GateUp]; w.round {
		n = w.to.WorkSize(l.cols(o.X))
	}
	if w := l.d.weights[o.Down]; w.round {
		n = max(n, w.to.WorkSize(o.Width))
	}
	return take[float32](work, n, 4)
}

// expert computes y = x · Wᵀ + bias with one matrix of a stack.
func (l *launch) expert(id, bias backend.WeightID, expert int, x, y, row, round []float32) {
	w := l.d.weights[id]
	in, out := len(x), len(y)
	size := w.Format.Bytes(int64(in)) * int64(out)
	a := ref.LinearArgs{
		Rows: 1, In: in, Out: out, X: x, W: w.data[int64(expert)*size:][:size], Format: w.Format, Scales: w.expertScales(expert),
		Y: y, To: out, Row: row,
	}
	if bias != backend.NoWeight {
		a.Bias = rowOf(l.vector(bias), expert, out)
	}
	if w.round {
		ref.LinearRounded(a, w.to, round)
		return
	}
	ref.Linear(a)
}
