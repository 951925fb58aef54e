package models

import (
	"math"
	"slices"

	"vapp.dev/engine/backend"
)

func (s *stepper) normalise(op backend.Norm) {
	x, w, n := s.in(op.X), s.weights[op.W], s.cols(op.Y)
	if op.Residual != backend.NoValue {
		for i := range x {
			s.in(op.Residual)[i] += x[i]
		}
		x = s.in(op.Residual)
	}
	if op.Segment > 0 {
		n = op.Segment
	}
	x = slices.Clone(x)
	y := s.fresh(op.Y)
	for i := 0; i < len(x); i += n {
		normalised(x[i:][:n], y[i:][:n], float64(op.Eps))
		for k := range n {
			y[i+k] *= w[k] + float64(op.Offset)
			if op.Gated {
				g := s.in(op.Gate)[i+k]
				y[i+k] *= g * sigmoid(g)
			}
		}
	}
}

// turn splits heads, each query before its gate, normalizes and rotates them.
func (s *stepper) turn(op backend.Rope) {
	d, in := op.HeadDim, s.cols(op.QKV)
	q, gate, k, v := s.fresh(op.Q), s.fresh(op.Gate), s.fresh(op.K), s.fresh(op.V)
	for row := range len(s.in(op.QKV)) / in {
		x, angles := s.in(op.QKV)[row*in:][:in], s.in(op.Angles)[row*op.Rotary:]
		head := func(from []float64, to []float64, weight backend.WeightID) {
			normalised(from[:d], to, float64(op.Norm.Eps))
			for i := range d {
				to[i] *= s.weights[weight][i] + float64(op.Norm.Offset)
			}
			half := op.Rotary / 2
			for i := range half {
				a, b := to[i], to[half+i]
				to[i], to[half+i] = a*angles[i]-b*angles[half+i], b*angles[i]+a*angles[half+i]
			}
		}
		for h := range op.Heads {
			head(x[2*h*d:], q[(row*op.Heads+h)*d:][:d], op.Norm.Q)
			copy(gate[(row*op.Heads+h)*d:][:d], x[(2*h+1)*d:])
		}
		for h := range op.KVHeads {
			head(x[(2*op.Heads+h)*d:], k[(row*op.KVHeads+h)*d:][:d], op.Norm.K)
			copy(v[(row*op.KVHeads+h)*d:][:d], x[(2*op.Heads+op.KVHeads+h)*d:])
		}
	}
}

// attend reads positions before the step, or before a draft row, from pages.
func (s *stepper) attend(op backend.Attention) {
	d, y, width := op.HeadDim, s.fresh(op.Y), op.KVHeads*op.HeadDim
	for row := range len(y) / (op.Heads * d) {
		at, paged := s.at(row, op.Draft), s.from
		if op.Draft != nil {
			paged = at
		}
		var keys, values [][]float64
		for p := range at + 1 {
			if p < paged {
				keys, values = append(keys, s.keys[[2]int{op.Layer, p}]), append(values, s.values[[2]int{op.Layer, p}])
			} else {
				keys, values = append(keys, s.in(op.K)[(p-paged)*width:]), append(values, s.in(op.V)[(p-paged)*width:])
			}
		}
		for h := range op.Heads {
			q, kv := s.in(op.Q)[(row*op.Heads+h)*d:][:d], h/(op.Heads/op.KVHeads)*d
			weights, sum := make([]float64, at+1), 0.0
			for p := range weights {
				for i := range d {
					weights[p] += q[i] * keys[p][kv+i]
				}
				weights[p] = math.Exp(weights[p] * float64(op.Scale))
				sum += weights[p]
			}
			for p := range weights {
				for i := range d {
					y[(row*op.Heads+h)*d+i] += weights[p] / sum * values[p][kv+i]
				}
			}
		}
	}
}

// conv stores the inputs of position p in row p mod ConvRows.
func (s *stepper) conv(op backend.Conv) {
	x, y, w, n := s.in(op.X), s.fresh(op.Y), s.weights[op.W], s.cols(op.X)
	ring := s.p.Classes[op.Class].State.ConvRows
	for row := range s.tokens {
		at := s.from + row
		s.inputs[[2]int{op.Layer, at % ring}] = slices.Clone(x[row*n:][:n])
		for c := range n {
			sum := 0.0
			for k := range op.Kernel {
				if p := at - op.Kernel + 1 + k; p >= 0 {
					sum += w[c*op.Kernel+k] * s.inputs[[2]int{op.Layer, p % ring}][c]
				}
			}
			y[row*n+c] = sum * sigmoid(sum)
		}
	}
}

// delta stores the state after position p in copy p mod Copies.
func (s *stepper) delta(op backend.DeltaNet) {
	copies, size := s.p.Classes[op.Class].State.Copies, op.KeyDim*op.ValueDim
	y, n := s.fresh(op.Y), s.cols(op.QKV)
	state := make([]float64, op.ValueHeads*size)
	if s.from > 0 {
		state = slices.Clone(s.matrices[[2]int{op.Layer, (s.from - 1) % copies}])
	}
	for row := range s.tokens {
		qkv, ba := s.in(op.QKV)[row*n:][:n], s.in(op.BA)[row*2*op.ValueHeads:]
		for h := range op.ValueHeads {
			kh := h * op.KeyHeads / op.ValueHeads
			q, k := unit(qkv[kh*op.KeyDim:][:op.KeyDim]), unit(qkv[(op.KeyHeads+kh)*op.KeyDim:][:op.KeyDim])
			v := qkv[2*op.KeyHeads*op.KeyDim+h*op.ValueDim:][:op.ValueDim]
			beta := sigmoid(ba[h])
			decay := math.Exp(-math.Exp(s.weights[op.ALog][h]) * math.Log1p(math.Exp(ba[op.ValueHeads+h]+s.weights[op.DtBias][h])))
			m := state[h*size:][:size]
			for i := range m {
				m[i] *= decay
			}
			for c := range op.ValueDim {
				seen := 0.0
				for r := range op.KeyDim {
					seen += m[r*op.ValueDim+c] * k[r]
				}
				out := 0.0
				for r := range op.KeyDim {
					m[r*op.ValueDim+c] += k[r] * beta * (v[c] - seen)
					out += m[r*op.ValueDim+c] * q[r]
				}
				y[(row*op.ValueHeads+h)*op.ValueDim+c] = out / math.Sqrt(float64(op.KeyDim))
			}
		}
		s.matrices[[2]int{op.Layer, (s.from + row) % copies}] = slices.Clone(state)
	}
}

// unit returns x divided by its length.
func unit(x []float64) []float64 {
	const eps = 1e-6
	sum := eps
	for _, v := range x {
		sum += v * v
	}
	out := slices.Clone(x)
	for i := range out {
		out[i] /= math.Sqrt(sum)
	}
	return out
}
