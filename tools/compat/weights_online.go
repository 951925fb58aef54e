package compat

import (
	"cmp"
	"slices"
	"strconv"
)

// pending is a matrix, or the experts of a layer, to be converted to fp8 at load.
type pending struct {
	layer   int64
	name    string // last module name in the checkpoint
	n, k    int64
	experts int64 // 0: a linear layer
	inter   int64 // of an expert on this rank
}

// convert loads and quantizes the pending matrices layer by layer in the checkpoint's order, which
// is alphabetical (layers.0, layers.1, layers.10 …). A matrix is allocated whole in the model's
// dtype, quantized and, for Marlin, repacked. The freed memory determines where the next matrix is
// allocated.
func (w *rank) convert() {
	slices.SortStableFunc(w.pending, func(a, b pending) int {
		return cmp.Or(cmp.Compare(strconv.FormatInt(a.layer, 10), strconv.FormatInt(b.layer, 10)), cmp.Compare(a.name, b.name))
	})
	for _, p := range w.pending {
		if w.err != nil {
			return
		}
		if p.experts > 0 {
			w.convertExperts(p)
			continue
		}
		whole := w.passing(w.dtype, p.n, p.k)
		q := w.tensor(1, p.n, p.k)
		w.a.release(whole)
		if !w.marlin {
			w.tensor(4, 1)
			continue
		}
		w.again(q)
		w.workspace()
		w.param(p.n)
	}
	w.pending = nil
}

func (w *rank) convertExperts(p pending) {
	e := p.experts
	up, down := w.passing(w.dtype, e, p.n, p.k), w.passing(w.dtype, e, p.k, p.inter)
	q1 := w.tensor(1, e, p.n, p.k)
	q2 := w.tensor(1, e, p.k, p.inter)
	w.a.release(up, down)
	if !w.marlin {
		w.tensor(4, e)
		w.tensor(4, e)
		return
	}
	w.again(q1)
	w.again(q2)
	w.workspace()
	w.param(e, p.n)
	w.param(e, p.k)
}

// passing allocates a temporary tensor, which does not count as resident.
func (w *rank) passing(size int64, dims ...int64) *block {
	was := w.bytes
	b := w.tensor(size, dims...)
	w.bytes = was
	return b
}

// again copies a tensor to a new one of the same size and frees the old one.
func (w *rank) again(b *block) *block {
	c := w.a.alloc(b.asked)
	w.a.release(b)
	return c
}

// repacked is an fp8 weight of the checkpoint that is repacked for Marlin after loading.
type repacked struct {
	weight, scale *block
	part          part
	scales        int64 // of the model's dtype after repacking
}

// repackLinear repacks the fp8 weights of a checkpoint to the weight-only Marlin layout, with
// scales of the model's dtype.
func (w *rank) repackLinear() {
	for _, r := range w.repacked {
		if w.err != nil {
			return
		}
		w.as(r.part, func() {
			w.workspace()
			w.again(r.weight)
			w.param(r.scales)
			w.a.release(r.scale)
			w.bytes[w.part] -= r.scale.asked
		})
	}
	w.repacked = nil
}

// repackExperts repacks mxfp4 experts for Marlin, layer by layer: weights, scales, biases.
func (w *rank) repackExperts() {
	for _, l := range w.experts4 {
		w.workspace()
		for _, b := range l {
			w.again(b)
		}
	}
	w.experts4 = nil
}

// workspace allocates Marlin's workspace: 4 ints per SM and layer.
func (w *rank) workspace() {
	w.as(scalars, func() { w.tensor(4, 4*w.sms) })
}
