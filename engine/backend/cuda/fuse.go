package cuda

import (
	"unsafe"

	"vapp.dev/engine/backend"
	"vapp.dev/kernels/cuda"
)

// packedX describes packed rows that the previous op left in the workspace for the next op.
type packedX struct {
	op    int // the op that reads them
	value backend.Value
	to    cuda.Rounding
	order int32
}

// packedFor reports whether X of a product is packed already.
func (c *lowering) packedFor(x backend.Value, p product) bool {
	return c.left == packedX{c.now, x, p.to, orderOf(p)}
}

// keepPacked records that x is packed for the next op in the format of p.
func (c *lowering) keepPacked(x backend.Value, p product) {
	c.left = packedX{c.now + 1, x, p.to, orderOf(p)}
}

// orderOf returns the layout of packed X: PackArgs.Words.
func orderOf(p product) int32 {
	if p.Plain {
		return 2
	}
	return flag(p.Words)
}

// consumer returns the product that the next op makes of y, if that product packs its rows.
// The op that computes y can then pack them in the same pass. last means that no other op
// reads y unpacked; further products of y use the same packed rows.
func (c *lowering) consumer(y backend.Value) (p product, last, ok bool) {
	end := c.now + 1
	for ; end < len(c.p.Ops); end++ {
		o, is := c.p.Ops[end].(backend.Linear)
		if !is || o.X != y {
			break
		}
		m, err := c.l.matrix(c.p.Weights[o.W])
		if err != nil || m.multiplies() != "" {
			break // lowering that op returns the error
		}
		q := c.product(m, c.rows(c.info(y).Rows), counters)
		if !q.packed || ok && (q.to != p.to || orderOf(q) != orderOf(p)) {
			break
		}
		if !ok {
			p, ok = q, true
		}
	}
	freed := c.info(y).Freed
	return p, freed > 0 && freed <= end, ok
}

// packInto returns the arguments with which a kernel packs x, of n columns, for product p.
func (c *lowering) packInto(p product, x cuda.Ptr, n int) cuda.PackArgs {
	return cuda.PackArgs{X: x, Y: c.workspace(p.x), Sums: c.workspace(p.sums), In: int32(n), Group: int32(p.to.GroupSteps()), Words: orderOf(p), Most: int32(p.most)}
}

// launchPack launches the kernel that packs rows of n numbers from a source. rows is the row
// count, which goes to offset at of the arguments a.
func launchPack[T any](c *lowering, p product, s cuda.Source, n int, rows dimension, a T, at uintptr) error {
	most, fields := rows.add, []field(nil)
	if rows.bound {
		most, fields = 8, []field{{at, rows}}
	}
	blocks, threads := p.to.Grid(s, most, n)
	g := grid{fixed(blocks[0]), fixed(blocks[1]), fixed(blocks[2])}
	if rows.bound { // tiles of 8
		g[1] = rows
		g[1].over *= 8
	}
	return add(c, p.to.Kernel(s), g, threads, 0, a, fields...)
}

// pack packs rows of n numbers for the matrix units; order selects the rows, or 0.
func (c *lowering) pack(p product, x, order cuda.Ptr, n int, rows dimension) error {
	a := c.packInto(p, x, n)
	a.Order, a.Rows = order, int32(rows.add)
	return launchPack(c, p, cuda.FromRows, n, rows, a, unsafe.Offsetof(a.Rows))
}

// normPack normalises rows and packs them for the next op's product. done is false if it
// cannot.
func (c *lowering) normPack(o backend.Norm) (done bool, err error) {
	y := c.info(o.Y)
	if o.Gated || o.Plain || o.Segment != 0 && o.Segment != y.Cols {
		return false, nil
	}
	p, last, ok := c.consumer(o.Y)
	if !ok || !last && o.Y == o.X { // X is still read
		return false, nil
	}
	a := cuda.NormPackArgs{Pack: c.packInto(p, c.value(o.X), y.Cols), Residual: c.value(o.Residual), W: c.weight(o.W), Eps: o.Eps, Offset: o.Offset, Scale: scaleOf(o)}
	if !last {
		a.Plain = c.value(o.Y)
	}
	c.keepPacked(o.Y, p)
	return true, launchPack(c, p, cuda.FromNorm, y.Cols, each(y.Rows, 1, 1), a, unsafe.Offsetof(a.Pack)+unsafe.Offsetof(a.Pack.Rows))
}

// gluPack gates rows of 2·n numbers and packs them for a product.
func (c *lowering) gluPack(p product, x cuda.Ptr, n int, act backend.Activation, rows dimension) error {
	g := gluArgs(act)
	a := cuda.GLUPackArgs{Pack: c.packInto(p, x, n), Act: g.Act, Paired: g.Paired, Limit: g.Limit, Alpha: g.Alpha, Shift: g.Shift}
	a.Pack.Rows = int32(rows.add)
	return launchPack(c, p, cuda.FromGLU, n, rows, a, unsafe.Offsetof(a.Pack)+unsafe.Offsetof(a.Pack.Rows))
}

// gluArgs returns the kernel arguments of an activation.
func gluArgs(act backend.Activation) cuda.GLUArgs {
	a := cuda.GLUArgs{Act: int32(act.Act), Paired: flag(act.Paired), Limit: act.Limit, Alpha: act.Alpha, Shift: act.Shift}
	if act.Limit == 0 && act.Alpha == 0 && act.Shift == 0 {
		a.Alpha = 1
	}
	return a
}

// glu appends a gated activation. Its result is only packed if the next op's product is its
// only reader.
func (c *lowering) glu(o backend.GLU) error {
	y := c.info(o.Y)
	if p, last, ok := c.consumer(o.Y); ok && last {
		c.keepPacked(o.Y, p)
		return c.gluPack(p, c.value(o.X), y.Cols, o.Activation, each(y.Rows, 1, 1))
	}
	return c.gated(c.value(o.X), c.value(o.Y), y.Cols, o.Activation, each(y.Rows, 1, 1))
}

// gated appends the gating of rows of 2·n numbers at x; each row of y gets n.
func (c *lowering) gated(x, y cuda.Ptr, n int, act backend.Activation, rows dimension) error {
	a := gluArgs(act)
	a.X, a.Y, a.Cols, a.Rows = x, y, int32(n), int32(rows.add)
	kernel, each4 := "glu", n
	if !act.Paired && n%4 == 0 {
		kernel, each4 = "glu4", n/4
	}
	const threads = 256
	blocks, fields := fixed(ceil(rows.add*each4, threads)), []field(nil)
	if rows.bound {
		blocks, fields = each(backend.Rows(rows.of), each4, threads), []field{{unsafe.Offsetof(a.Rows), rows}}
	}
	return add(c, kernel, line(blocks), threads, 0, a, fields...)
}
