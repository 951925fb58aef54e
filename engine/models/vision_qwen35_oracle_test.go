package models

import (
	"math"
	"slices"
	"testing"

	"vapp.dev/engine/backend"
)

// TestQwen35TowerRecorded is TestTowerRecorded for Qwen3.5.
func TestQwen35TowerRecorded(t *testing.T) {
	towerGoldens(t, "tiny-qwen35-tower", func(o *oracle, op backend.Op) { (&qwen35Oracle{o}).op(op) })
}

// qwen35Oracle is an oracle with the ops of Qwen3.5's tower too.
type qwen35Oracle struct{ *oracle }

func (o *qwen35Oracle) op(op backend.Op) {
	cols := func(v backend.Value) int { return o.p.Values[v].Cols }
	switch op := op.(type) {
	case backend.Linear:
		o.oracle.op(op)
		bias := o.weight(op.Bias)
		for i := range o.values[op.Y] {
			o.values[op.Y][i] += bias[i%len(bias)]
		}
	case backend.Norm:
		o.layerNorm(op, cols(op.X))
	case backend.Angles:
		w, y := o.weight(op.InvFreq), o.make(op.Y)
		n := len(w)
		for i, at := range [][]float64{o.values[op.Across], o.values[op.Down]} {
			for t, pos := range at {
				for k, f := range w {
					y[t*4*n+i*n+k], y[t*4*n+2*n+i*n+k] = math.Cos(pos*f), math.Sin(pos*f)
				}
			}
		}
	case backend.Rope:
		o.turn(op)
	case backend.Activate:
		for i, x := range o.values[op.X] {
			y := 0.5 * x * (1 + math.Erf(x/math.Sqrt2))
			if op.Act == backend.GELUTanh {
				y = 0.5 * x * (1 + math.Tanh(math.Sqrt(2/math.Pi)*(x+0.044715*x*x*x)))
			}
			o.values[op.X][i] = y
		}
	case backend.Resample:
		o.resample(op, cols(op.X))
	case backend.Join:
		o.values[op.Y] = slices.Clone(o.values[op.X])
	default:
		o.oracle.op(op)
	}
}

func (o *qwen35Oracle) layerNorm(op backend.Norm, n int) {
	x := o.values[op.X]
	if op.Residual != backend.NoValue {
		r := o.values[op.Residual]
		for i := range r {
			r[i] += x[i]
		}
		x = r
	}
	y, w, b := o.make(op.Y), o.weight(op.W), o.weight(op.Bias)
	for row := 0; row < len(x); row += n {
		mean, square := 0.0, 0.0
		for _, v := range x[row:][:n] {
			mean += v / float64(n)
		}
		for _, v := range x[row:][:n] {
			square += (v - mean) * (v - mean) / float64(n)
		}
		for i := range n {
			y[row+i] = (x[row+i]-mean)/math.Sqrt(square+float64(op.Eps))*w[i] + b[i]
		}
	}
}

// turn splits heads and rotates queries and keys by halves.
func (o *qwen35Oracle) turn(op backend.Rope) {
	d, n, half := op.HeadDim, op.Heads, op.Rotary/2
	qkv, angles := o.values[op.QKV], o.values[op.Angles]
	outs := [][]float64{o.make(op.Q), o.make(op.K), o.make(op.V)}
	for i := range len(qkv) / d {
		t, h := i/(3*n), i%(3*n)
		y := outs[h/n][(t*n+h%n)*d:][:d]
		copy(y, qkv[i*d:])
		if h/n == 2 {
			continue
		}
		row := angles[t*op.Rotary:]
		for k := range half {
			a, b := y[k], y[half+k]
			y[k], y[half+k] = a*row[k]-b*row[half+k], b*row[k]+a*row[half+k]
		}
	}
}

func (o *qwen35Oracle) resample(op backend.Resample, n int) {
	x, table := o.values[op.X], o.weight(op.Table)
	across, down := o.values[op.Across], o.values[op.Down]
	at := func(v float64, all []float64) (low, high int, part float64) {
		v *= float64(op.Side-1) / max(1, slices.Max(all))
		low = int(v)
		return low, min(low+1, op.Side-1), v - math.Floor(v)
	}
	for t := range across {
		c0, c1, cp := at(across[t], across)
		r0, r1, rp := at(down[t], down)
		for i := range n {
			get := func(r, c int) float64 { return table[(r*op.Side+c)*n+i] }
			x[t*n+i] += (1-rp)*((1-cp)*get(r0, c0)+cp*get(r0, c1)) + rp*((1-cp)*get(r1, c0)+cp*get(r1, c1))
		}
	}
}
