package ref

import (
	"vapp.dev/engine/backend"
	"vapp.dev/kernels/ref"
)

type angles struct{ backend.Angles }

func (o angles) units(l *launch) int { return l.b.Tokens }
func (o angles) run(l *launch, _, t int) error {
	ref.Angles(l.s.Positions[t], l.vector(o.InvFreq), o.Scale, rowOf(l.floats(o.Y), t, l.cols(o.Y)))
	return nil
}

type rope struct{ backend.Rope }

func (o rope) units(l *launch) int { return l.b.Tokens }
func (o rope) run(l *launch, _, t int) error {
	d, kv := o.HeadDim, o.KVHeads*o.HeadDim
	x := rowOf(l.floats(o.QKV), t, l.cols(o.QKV))
	a := rowOf(l.floats(o.Angles), t, o.Rotary)
	q := rowOf(l.floats(o.Q), t, o.Heads*d)
	for h := range o.Heads {
		ref.Rotate(rowOf(x, h, d), a, rowOf(q, h, d))
	}
	// K turns where it lies: QKV is not read again.
	k, v := x[o.Heads*d:][:kv], x[o.Heads*d+kv:]
	for h := range o.KVHeads {
		ref.Rotate(rowOf(k, h, d), a, rowOf(k, h, d))
	}
	f := l.e.p.Values[o.K].Format
	n := elementBytes(f, kv)
	ref.Quantize(f, k, rowOf(l.bytes(o.K), t, n))
	ref.Quantize(f, v, rowOf(l.bytes(o.V), t, n))
	return nil
}

type attention struct{ backend.Attention }

func (o attention) units(l *launch) int { return l.b.Seqs * o.KVHeads }
func (o attention) run(l *launch, worker, i int) error {
	room, n, d := l.room(worker), int(positions(l.e.p, o.Class)), o.HeadDim
	ref.Attention(ref.AttentionArgs{
		Q: l.floats(o.Q), Y: l.floats(o.Y), K: l.bytes(o.K), V: l.bytes(o.V),
		First: l.s.First, Positions: l.s.Positions, Tables: l.s.Pages[o.Class], Width: l.e.p.Classes[o.Class].MaxPages,
		Pages: l.pages(o.Class, o.Layer), Heads: o.Heads, Scale: o.Scale,
		Room: ref.AttentionRoom{
			K: take[float32](room, n*d, 4), V: take[float32](room, n*d, 4), P: take[float64](room, n, 8), Acc: take[float64](room, d, 8),
		},
	}, i/o.KVHeads, i%o.KVHeads)
	return nil
}

type storeKV struct{ backend.StoreKV }

func (o storeKV) units(l *launch) int { return l.b.Tokens }
func (o storeKV) run(l *launch, _, t int) error {
	p := l.pages(o.Class, o.Layer)
	n := elementBytes(p.Format, p.KVHeads*p.HeadDim)
	page, slot := l.slot(o.Class, t)
	p.Store(page, slot, rowOf(l.bytes(o.K), t, n), rowOf(l.bytes(o.V), t, n))
	return nil
}
