package ref

import (
	"vapp.dev/engine/backend"
	"vapp.dev/kernels/ref"
)

type latentRope struct{ backend.LatentRope }

func (o latentRope) units(l *launch) int { return l.rowsOf(o.KV) }
func (o latentRope) run(l *launch, _, t int) error {
	rotate, angles := ref.Rotate, rowOf(l.floats(o.Angles), t, o.Rotary)
	if o.Interleaved {
		rotate = ref.RotatePairs
	}
	q, query := rowOf(l.floats(o.Q), t, l.cols(o.Q)), rowOf(l.floats(o.Query), t, l.cols(o.Query))
	for h := range o.Heads {
		rotate(rowOf(q, h, o.Nope+o.Rotary)[o.Nope:], angles, rowOf(query, h, o.Rank+o.Rotary)[o.Rank:])
	}
	kv, f := rowOf(l.floats(o.KV), t, l.cols(o.KV)), l.e.p.Values[o.K].Format
	v, k := make([]float32, o.Rank), make([]float32, o.Rotary)
	ref.Norm(kv[:o.Rank], nil, l.vector(o.Norm), o.Eps, v)
	rotate(kv[o.Rank:], angles, k)
	ref.Quantize(f, v, rowOf(l.bytes(o.V), t, elementBytes(f, o.Rank)))
	ref.Quantize(f, k, rowOf(l.bytes(o.K), t, elementBytes(f, o.Rotary)))
	return nil
}

type headLinear struct{ backend.HeadLinear }

func (o headLinear) units(l *launch) int {
	if l.rowsOf(o.Y) == 0 {
		return 0
	}
	return o.Heads * o.blocks(l)
}

// blocks returns how many units of outputs a head has.
func (o headLinear) blocks(l *launch) int {
	return (l.e.p.Weights[o.W].Rows + linearUnit - 1) / linearUnit
}

func (o headLinear) run(l *launch, worker, i int) error {
	w, spec, head, block := l.d.weights[o.W], l.e.p.Weights[o.W], i/o.blocks(l), i%o.blocks(l)*linearUnit
	size, strideX, strideY := w.Format.Bytes(int64(spec.Cols))*int64(spec.Rows), l.cols(o.X), l.cols(o.Y)
	ref.Linear(ref.LinearArgs{
		Rows: l.rowsOf(o.Y), In: spec.Cols, Out: spec.Rows, W: w.data[int64(head)*size:][:size], Format: w.Format,
		X: l.floats(o.X)[head*strideX/o.Heads:], StrideX: strideX, Y: l.floats(o.Y)[head*strideY/o.Heads:], StrideY: strideY,
		From: block, To: min(block+linearUnit, spec.Rows), Row: take[float32](l.workspace(worker), ref.Together*spec.Cols, 4),
	})
	return nil
}
