package models

import (
	"vapp.dev/engine/backend"
	"vapp.dev/kernels"
)

// gatedMLP computes W_down · (act(gate) ∘ up), where gate and up are the halves of W_gateUp · x.
type gatedMLP struct {
	gateUp, gateUpBias, down, downBias backend.WeightID
	width                              int // of gate, and of up
	act                                backend.Activation
	keep                               bool // x stays as it is: the result is a value of its own
}

// record consumes x, unless m keeps it, and returns the MLP's result, summed over the ranks. If the
// tokens are processed in chunks, each chunk's result overwrites its part of x, and the intermediate
// values have the size of one chunk.
func (m gatedMLP) record(r *backend.Recorder, x backend.Value) backend.Value {
	list, y := r.Chunks(x), x
	out := list
	if m.keep {
		y = r.New("delta", kernels.F32, r.Info(x).Rows, r.Info(x).Cols)
		out = r.Chunks(y)
	}
	fresh := len(list) == 1 && !m.keep // x is freed before the result is made
	for i, part := range list {
		rows := r.Info(part).Rows
		gu := r.New("gate_up", kernels.F32, rows, 2*m.width)
		r.Do(backend.Linear{X: part, W: m.gateUp, Bias: m.gateUpBias, Y: gu})
		if fresh {
			r.Free(x)
		}
		a := r.New("act", kernels.F32, rows, m.width)
		r.Do(backend.GLU{X: gu, Y: a, Activation: m.act})
		r.Free(gu)
		if fresh {
			y = r.New("delta", kernels.F32, rows, r.Info(x).Cols)
			out = []backend.Value{y}
		}
		r.Do(backend.Linear{X: a, W: m.down, Bias: m.downBias, Y: out[i]})
		r.Free(a)
	}
	r.Do(backend.AllReduce{X: y})
	return y
}
