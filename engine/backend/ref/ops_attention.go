package ref

import (
	"vapp.dev/engine/backend"
	"vapp.dev/kernels/ref"
)

type angles struct{ backend.Angles }

func (o angles) units(l *launch) int { return l.rowsOf(o.Y) }
func (o angles) run(l *launch, _, t int) error {
	if o.Grid {
		o.grid(l, t)
		return nil
	}
	if o.Sections != [3]int{} {
		ref.AnglesOfSections(l.positions(t, o.Draft), o.Sections, l.vector(o.InvFreq), o.Scale, rowOf(l.floats(o.Y), t, l.cols(o.Y)))
		return nil
	}
	at, scale := int32(max(0, l.position(t, o.Draft))), o.Scale
	if e := o.Temperature; e.Every > 0 {
		scale *= ref.Temperature(at, e.Beta, int32(e.Every), int32(e.Offset))
	}
	ref.Angles(at, l.vector(o.InvFreq), scale, rowOf(l.floats(o.Y), t, l.cols(o.Y)))
	return nil
}

// grid fills a row with the angles of a patch's column and row.
func (o angles) grid(l *launch, t int) {
	freq, y := l.vector(o.InvFreq), rowOf(l.floats(o.Y), t, l.cols(o.Y))
	n := len(freq)
	pair := make([]float32, 2*n)
	for i, places := range [][]int32{l.ints(o.Across), l.ints(o.Down)} {
		ref.Angles(places[t], freq, o.Scale, pair)
		if o.Joined {
			copy(y[i*n:], pair[:n])
			copy(y[(2+i)*n:], pair[n:])
		} else {
			copy(y[2*i*n:], pair)
		}
	}
}

type rope struct{ backend.Rope }

func (o rope) units(l *launch) int { return l.rowsOf(o.QKV) }
func (o rope) run(l *launch, _, t int) error {
	d, kv := o.HeadDim, o.KVHeads*o.HeadDim
	x := rowOf(l.floats(o.QKV), t, l.cols(o.QKV))
	var a []float32
	if o.Rotary > 0 {
		a = rowOf(l.floats(o.Angles), t, o.Rotary)
	}
	ofQ := a
	if o.Tempered {
		ofQ = rowOf(l.floats(o.QueryAngles), t, o.Rotary)
	}
	q, step := rowOf(l.floats(o.Q), t, o.Heads*d), 1
	if o.Gated {
		step = 2
	}
	var wq, wk []float32
	if n := o.Norm; n != nil {
		if n.Q != backend.NoWeight {
			wq = l.vector(n.Q)
		}
		if n.K != backend.NoWeight {
			wk = l.vector(n.K)
		}
		if n.Whole {
			ref.NormOffset(x[:o.Heads*d], nil, wq, n.Offset, n.Eps, x[:o.Heads*d])
		}
	}
	for h := range o.Heads {
		head := rowOf(x, step*h, d)
		if o.Gated {
			copy(rowOf(rowOf(l.floats(o.Gate), t, o.Heads*d), h, d), rowOf(x, 2*h+1, d))
		}
		o.turn(head, o.weightsOf(wq, h), ofQ, rowOf(q, h, d))
	}
	// K is rotated in place: QKV is not read again.
	k := x[step*o.Heads*d:][:kv]
	v := x[step*o.Heads*d+kv:]
	if o.Shared {
		v = append([]float32(nil), k...)
	}
	if n := o.Norm; n != nil && n.Whole {
		ref.NormOffset(k, nil, wk, n.Offset, n.Eps, k)
	}
	for h := range o.KVHeads {
		o.turn(rowOf(k, h, d), o.weightsOf(wk, h), a, rowOf(k, h, d))
		if o.Norm != nil && o.Norm.V {
			ref.Norm(rowOf(v, h, d), nil, nil, o.Norm.Eps, rowOf(v, h, d))
		}
	}
	if kv == 0 {
		return nil
	}
	f := l.e.p.Values[o.K].Format
	n := elementBytes(f, kv)
	ref.Quantize(f, k, rowOf(l.bytes(o.K), t, n))
	ref.Quantize(f, v, rowOf(l.bytes(o.V), t, n))
	return nil
}

// weightsOf returns the weights of the norm of head h; nil: ones.
func (o rope) weightsOf(w []float32, h int) []float32 {
	if w != nil && o.Norm.Each {
		return rowOf(w, h, o.HeadDim)
	}
	return w
}

// rotate rotates a head. y may be x.
func (o rope) rotate(x, angles, y []float32) {
	if o.Grid {
		n := o.Rotary / 2
		copy(y, x)
		ref.Rotate(x[:n], angles[:n], y[:n])
		ref.Rotate(x[n:2*n], angles[n:], y[n:2*n])
	} else if o.Interleaved {
		ref.RotatePairs(x, angles, y)
	} else {
		ref.Rotate(x, angles, y)
	}
}

// turn normalises a head, unless all heads are normalised already, and rotates it, in the
// order of o.Norm. y may be x.
func (o rope) turn(x, w, angles, y []float32) {
	switch n := o.Norm; {
	case n == nil || n.Whole:
		o.rotate(x, angles, y)
	case n.After:
		o.rotate(x, angles, y)
		ref.NormOffset(y, nil, w, n.Offset, n.Eps, y)
	case n.Plain:
		ref.LayerNorm(x, w, nil, n.Eps, x)
		o.rotate(x, angles, y)
	default:
		ref.NormOffset(x, nil, w, n.Offset, n.Eps, x)
		o.rotate(x, angles, y)
	}
}

type attention struct{ backend.Attention }

func (o attention) units(l *launch) int { return l.b.Seqs * o.KVHeads }
func (o attention) run(l *launch, worker, i int) error {
	work, n, d := l.workspace(worker), int(spanOf(l.e.p, o.Attention)), o.HeadDim
	wide := d + o.Latent
	a := ref.AttentionArgs{
		Q: l.floats(o.Q), Y: l.floats(o.Y), K: l.bytes(o.K), V: l.bytes(o.V), First: l.s.First, Positions: l.s.Positions,
		Heads: o.Heads, Scale: o.Scale, Window: o.Window, Softcap: o.Softcap, Bidirectional: o.Bidirectional,
		Workspace: ref.AttentionWorkspace{
			K: take[float32](work, n*wide, 4), V: take[float32](work, n*d, 4), P: take[float64](work, n, 8), Acc: take[float64](work, d, 8),
		},
	}
	if o.Bidirectional {
		a.Pages = ref.Pages{Format: l.e.p.Values[o.K].Format, KVHeads: o.KVHeads, HeadDim: d}
	} else {
		a.Tables, a.Width, a.Pages = l.s.Pages[o.Class], l.e.p.Classes[o.Class].MaxPages, l.pages(o.Class, o.Layer)
		a.Pages.Latent = o.Latent > 0
	}
	if o.Items {
		a.Items = l.s.ItemEnd
	}
	if o.Sinked {
		a.Sinks = l.vector(o.Sinks)
	}
	if o.Rebuild != nil {
		a.Rebuild = l.vector(o.Rebuild.Weight)
	}
	seq := i / o.KVHeads
	if o.Draft != nil {
		if l.position(seq, o.Draft) < 0 {
			return nil
		}
		a.First, a.Positions = o.draftPositions(l)
	}
	ref.Attention(a, seq, i%o.KVHeads)
	return nil
}

// draftPositions returns First and Positions for draft rows: each is a sequence of one token,
// after the positions in its pages. Its position is the draft position, or the end of the
// page table if that is less.
func (o attention) draftPositions(l *launch) (first, positions []int32) {
	c := l.e.p.Classes[o.Class]
	first = append(first, 0)
	for seq := range l.b.Seqs {
		pos, table := max(0, l.position(seq, o.Draft)), rowOf(l.s.Pages[o.Class], seq, c.MaxPages)
		for b := range (pos + c.BlockSize - 1) / c.BlockSize {
			if b >= len(table) || table[b] < 0 {
				pos = b * c.BlockSize
				break
			}
		}
		first, positions = append(first, int32(seq+1)), append(positions, int32(pos))
	}
	return first, positions
}

type storeKV struct{ backend.StoreKV }

func (o storeKV) units(l *launch) int { return l.rowsOf(o.K) }
func (o storeKV) run(l *launch, _, t int) error {
	p := l.pages(o.Class, o.Layer)
	p.Latent = p.KeyDim > 0 && l.cols(o.K) == p.KVHeads*p.KeyDim
	n, key := elementBytes(p.Format, p.KVHeads*p.HeadDim), elementBytes(p.Format, l.cols(o.K))
	page, slot := l.slot(o.Class, t, o.Draft)
	if page < 0 {
		return nil
	}
	p.Store(page, slot, rowOf(l.bytes(o.K), t, key), rowOf(l.bytes(o.V), t, n))
	return nil
}
