package cuda

import (
	"slices"

	"vapp.dev/engine/backend"
	"vapp.dev/kernels"
	"vapp.dev/kernels/cuda"
)

// Activations implements backend.ActivationLayout. Results of products are stored in bf16 where only a rotation, a norm, a sum or a
// gate reads them, and queries in the 16 bits that attention multiplies. F32 stay: the residual stream, to which every layer adds; what a
// norm changes in place; what ranks sum; results of weights in fp16, since fp16 has no range and bf16 fewer bits than such a model expects; and
// those of inputs in 8 bits, since what follows is rounded to 8 bits once more: a number that bf16 moves gets another code.
func (l layout) Activations(p *backend.Program) []kernels.Format {
	out := make([]kernels.Format, len(p.Values))
	stored := make([]kernels.Format, len(p.Values)) // by what reads or writes a value; Invalid: nothing yet
	read, written := make([]bool, len(p.Values)), make([]bool, len(p.Values))
	for _, op := range p.Ops {
		halves, named := l.halves(p, op), map[backend.Value]int{}
		for _, v := range backend.Operands(op) {
			i := slices.IndexFunc(halves, func(h half) bool { return h.value == v })
			named[v]++
			switch {
			case i < 0 || named[v] > 1: // X and Y may be one value
				stored[v] = kernels.F32
				continue
			case stored[v] == kernels.Invalid:
				stored[v] = halves[i].format
			case halves[i].format != kernels.Invalid && halves[i].format != stored[v]:
				stored[v] = kernels.F32
			}
			read[v], written[v] = read[v] || !halves[i].writes, written[v] || halves[i].writes
		}
	}
	for v, in := range p.Values {
		if out[v] = in.Format; in.Format == kernels.F32 && stored[v] != kernels.Invalid && read[v] && written[v] {
			out[v] = stored[v]
		}
	}
	return out
}

// half is an operand that the kernel of an op reads or writes in 16 bits, if all ops of its value do.
type half struct {
	value  backend.Value
	format kernels.Format // Invalid: any
	writes bool
}

// halves returns an op's operands that may have 16 bits.
func (l layout) halves(p *backend.Program, op backend.Op) []half {
	if l.half() != kernels.BF16 {
		return nil
	}
	switch o := op.(type) {
	case backend.Linear:
		if l.writesBF16(p.Weights[o.W], o.Bias != backend.NoWeight) {
			return []half{{o.Y, kernels.BF16, true}}
		}
	case backend.Experts:
		if up, down := p.Weights[o.GateUp], p.Weights[o.Down]; l.writesBF16(up, false) && l.writesBF16(down, false) {
			return []half{{o.Y, kernels.BF16, true}}
		}
	case backend.Rope:
		return []half{{o.QKV, kernels.BF16, false}, {o.Q, kernels.Invalid, true}}
	case backend.Attention:
		if f, ok := cuda.QueryFormat(p.Values[o.K].Format); ok && o.Latent == 0 {
			return []half{{o.Q, f, false}}
		}
	case backend.Norm:
		if o.X != o.Y && o.Segment == 0 {
			return []half{{o.X, kernels.BF16, false}}
		}
	case backend.Add:
		return []half{{o.X, kernels.BF16, false}}
	case backend.GLU:
		return []half{{o.X, kernels.BF16, false}}
	}
	return nil
}

// writesBF16 reports whether the op of a weight can store its results in bf16.
func (l layout) writesBF16(w backend.WeightSpec, biased bool) bool {
	m, err := l.matrix(w)
	if err != nil || m.multiplies() != "" {
		return false // lowering the op returns the error
	}
	return l.rounds(m) && !(m.blas && biased) // the library adds only a bias of Y's format
}

// rounds reports whether the products of a matrix can be stored in bf16.
func (l layout) rounds(m matrix) bool {
	_, to, ok := l.chooseLinear(m, 1)
	return ok && l.half() == kernels.BF16 && to.Format == kernels.BF16
}
