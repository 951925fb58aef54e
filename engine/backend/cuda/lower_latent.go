package cuda

import (
	"unsafe"

	"vapp.dev/engine/backend"
	"vapp.dev/kernels/cuda"
)

// latentRope appends the norm of latents and the rotations of latent attention.
func (c *lowering) latentRope(o backend.LatentRope) error {
	a := cuda.LatentRopeArgs{
		Q: c.value(o.Q), KV: c.value(o.KV), Angles: c.value(o.Angles), W: c.weight(o.Norm), Query: c.value(o.Query), K: c.value(o.K), V: c.value(o.V),
		Heads: int32(o.Heads), Nope: int32(o.Nope), Rank: int32(o.Rank), Rotary: int32(o.Rotary), Interleaved: flag(o.Interleaved), Eps: o.Eps,
	}
	return add(c, "latent_rope_"+cuda.StoredName(c.info(o.K).Format), line(each(c.info(o.KV).Rows, 1, 1)), 32*min(8, o.Heads+1), 0, a)
}

// headProduct returns the stack of an op and the kernel for the variant's rows.
func (c *lowering) headProduct(o backend.HeadLinear) (m matrix, l cuda.HeadLinear, err error) {
	w := c.p.Weights[o.W]
	if m, err = c.l.matrix(w); err != nil {
		return m, l, err
	}
	l, ok := cuda.ChooseHeadLinear(m.stored, c.rows(c.info(o.Y).Rows))
	if !ok {
		return m, l, backend.Unsupported(name, "weight "+w.Name, "no kernel multiplies heads with "+m.stored.String()+elsewhere)
	}
	return m, l, nil
}

// headLinear appends the products of all heads.
func (c *lowering) headLinear(o backend.HeadLinear) error {
	m, l, err := c.headProduct(o)
	if err != nil {
		return err
	}
	x, y := c.info(o.X), c.info(o.Y)
	a := cuda.HeadLinearArgs{
		W: c.weight(o.W), X: c.value(o.X), Y: c.value(o.Y), HeadBytes: m.each, In: int32(m.Cols), Out: int32(m.Rows),
		XCols: int32(x.Cols), XHead: int32(x.Cols / o.Heads), YCols: int32(y.Cols), YHead: int32(y.Cols / o.Heads),
	}
	const threads = 256
	g := grid{each(y.Rows, 1, l.Rows), fixed(ceil(m.Rows, l.Features)), fixed(o.Heads)}
	return add(c, l.Kernel, g, threads, l.Shared, a, bind(unsafe.Offsetof(a.Rows), y.Rows, 1))
}
