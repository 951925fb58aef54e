package cuda

import (
	"unsafe"

	"vapp.dev/engine/backend"
	"vapp.dev/kernels/cuda"
)

// packedX is rows that lie packed in the workspace for the op at hand: the op before left them.
type packedX struct {
	op    int // that reads them
	value backend.Value
	to    cuda.Rounding
	order int32
}

// packedFor says that a product's X is packed already.
func (c *lowering) packedFor(x backend.Value, p product) bool {
	return c.left == packedX{c.now, x, p.to, orderOf(p)}
}

// leave says that the next op finds x packed as p has it.
func (c *lowering) leave(x backend.Value, p product) {
	c.left = packedX{c.now + 1, x, p.to, orderOf(p)}
}

// orderOf is how packed X lies: PackArgs.Words.
func orderOf(p product) int32 {
	if p.Plain {
		return 2
	}
	return flag(p.Words)
}

// consumer is the product that the next op makes of y, when its rows are packed: what makes
// y can do so in the same pass. last says that y's numbers are read by nobody else: products
// that follow take the same packed rows.
func (c *lowering) consumer(y backend.Value) (p product, last, ok bool) {
	end := c.now + 1
	for ; end < len(c.p.Ops); end++ {
		o, is := c.p.Ops[end].(backend.Linear)
		if !is || o.X != y {
			break
		}
		m, err := c.l.matrix(c.p.Weights[o.W])
		if err != nil || m.multiplies() != "" {
			break // refused where that op is lowered
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

// packInto are the arguments by which a kernel packs what product p takes of x, n columns.
func (c *lowering) packInto(p product, x cuda.Ptr, n int) cuda.PackArgs {
	return cuda.PackArgs{X: x, Y: c.room(p.x), Sums: c.room(p.sums), In: int32(n), Group: int32(p.to.GroupSteps()), Words: orderOf(p), Most: int32(p.most)}
}

// launchPack launches the kernel that packs rows of n numbers of a source; rows is where its
// arguments, a, count them.
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

// pack brings rows of n numbers to the matrix units, in an order or as they lie.
func (c *lowering) pack(p product, x, order cuda.Ptr, n int, rows dimension) error {
	a := c.packInto(p, x, n)
	a.Order, a.Rows = order, int32(rows.add)
	return launchPack(c, p, cuda.FromRows, n, rows, a, unsafe.Offsetof(a.Rows))
}

// normPack normalises rows as the next op's product takes them; done is false where it cannot.
func (c *lowering) normPack(o backend.Norm) (done bool, err error) {
	y := c.info(o.Y)
	if o.Gated || o.Plain || o.Segment != 0 && o.Segment != y.Cols {
		return false, nil
	}
	p, last, ok := c.consumer(o.Y)
	if !ok || !last && o.Y == o.X { // X is read twice
		return false, nil
	}
	a := cuda.NormPackArgs{Pack: c.packInto(p, c.value(o.X), y.Cols), Residual: c.value(o.Residual), W: c.weight(o.W), Eps: o.Eps, Offset: o.Offset, Scale: scaleOf(o)}
	if !last {
		a.Plain = c.value(o.Y)
	}
	c.leave(o.Y, p)
	return true, launchPack(c, p, cuda.FromNorm, y.Cols, each(y.Rows, 1, 1), a, unsafe.Offsetof(a.Pack)+unsafe.Offsetof(a.Pack.Rows))
}

// gluPack gates rows of 2·n numbers as a product takes them.
func (c *lowering) gluPack(p product, x cuda.Ptr, n int, act backend.Activation, rows dimension) error {
	g := gluArgs(act)
	a := cuda.GLUPackArgs{Pack: c.packInto(p, x, n), Act: g.Act, Paired: g.Paired, Limit: g.Limit, Alpha: g.Alpha, Shift: g.Shift}
	a.Pack.Rows = int32(rows.add)
	return launchPack(c, p, cuda.FromGLU, n, rows, a, unsafe.Offsetof(a.Pack)+unsafe.Offsetof(a.Pack.Rows))
}

// gluArgs are what kernels know of an activation.
func gluArgs(act backend.Activation) cuda.GLUArgs {
	a := cuda.GLUArgs{Act: int32(act.Act), Paired: flag(act.Paired), Limit: act.Limit, Alpha: act.Alpha, Shift: act.Shift}
	if act.Limit == 0 && act.Alpha == 0 && act.Shift == 0 {
		a.Alpha = 1
	}
	return a
}

// glu is a gated activation, packed where the next op's product is the only one that reads it.
func (c *lowering) glu(o backend.GLU) error {
	y := c.info(o.Y)
	if p, last, ok := c.consumer(o.Y); ok && last {
		c.leave(o.Y, p)
		return c.gluPack(p, c.value(o.X), y.Cols, o.Activation, each(y.Rows, 1, 1))
	}
	return c.gated(c.value(o.X), c.value(o.Y), y.Cols, o.Activation, each(y.Rows, 1, 1))
}

// gated gates rows of 2·n numbers at x; y gets n of each.
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
