package cuda

import (
	"fmt"
	"unsafe"

	"vapp.dev/engine/backend"
	"vapp.dev/kernels/cuda"
)

// linear is a product: X as the matrix units take it, then the kernel.
func (c *lowering) linear(o backend.Linear) error {
	w := c.p.Weights[o.W]
	m, err := c.l.matrix(w)
	if err != nil {
		return err
	}
	if why := m.multiplies(); why != "" {
		return backend.Unsupported(name, "weight "+w.Name, why)
	}
	x := c.info(o.X)
	p := c.product(m, c.rows(x.Rows), counters)
	if p.most%4 != 0 {
		return backend.Unsupported(name, "weight "+w.Name, fmt.Sprintf("cublaslt multiplies with scales of blocks for multiples of 4 rows, and a step has up to %d: make maxNumBatchedTokens and maxNumSeqs such multiples", p.most))
	}
	a := m.args(c.weight(o.W))
	a.Bias, a.Y = c.weight(o.Bias), c.value(o.Y)
	if !p.packed {
		a.X = c.value(o.X)
		g := grid{each(x.Rows, 1, p.Rows), fixed(ceil(m.Rows, 8)), fixed(1)}
		return add(c, p.Kernel, g, p.Threads, 0, a, bind(unsafe.Offsetof(a.Rows), x.Rows, 1))
	}
	if !c.packedFor(o.X, p) {
		if err := c.pack(p, c.value(o.X), 0, m.Cols, each(x.Rows, 1, 1)); err != nil {
			return err
		}
	}
	c.leave(o.X, p)
	if !p.Library {
		return c.multiply(p, a, m, x.Rows)
	}
	return c.library(p, a, m, x.Rows, o.Bias != backend.NoWeight)
}

// multiply launches a product of packed rows of a symbol.
func (c *lowering) multiply(p product, a cuda.LinearArgs, m matrix, rows backend.Rows) error {
	a.X, a.Sums, a.XSteps, a.Splits = c.room(p.x), c.room(p.sums), int32(p.to.ScaleSteps(m.Cols)), int32(p.splits)
	if p.splits > 1 {
		a.Partial, a.Arrived = c.room(p.partial), c.room(0)
	}
	b := p.Blocks(m.Rows, 1, p.splits)
	g := grid{each(rows, 1, p.Rows), fixed(b[1]), fixed(b[2])}
	return add(c, p.Kernel, g, p.Threads, p.Shared, a, bind(unsafe.Offsetof(a.Rows), rows, 1))
}

// library has cuBLASLt multiply. To results in float32 of 8-bit numbers it adds a bias of bf16 alone: theirs
// is a kernel's.
func (c *lowering) library(p product, a cuda.LinearArgs, m matrix, rows backend.Rows, biased bool) error {
	b := cuda.LibraryArgs{W: a.W, X: c.room(p.x), Bias: a.Bias, Y: a.Y, Workspace: c.room(p.partial), In: a.In, Out: a.Out, Most: int32(c.rows(rows))}
	scaled := m.count > 0
	if scaled {
		b.Scales, b.Sums, b.Bias, b.Blocks = a.Scales, c.room(p.sums), 0, flag(p.to.Group > 0)
	}
	err := add(c, p.Kernel, line(each(rows, 1, cuda.LibraryUnit)), 1, 0, b, bind(unsafe.Offsetof(b.Rows), rows, 1))
	if err != nil || !scaled || !biased {
		return err
	}
	const threads = 256
	fours := int(a.Out) / 4
	add4 := cuda.LinearBiasArgs{Y: a.Y, Bias: a.Bias, Out: int32(fours)}
	return add(c, cuda.LinearBias, line(each(rows, fours, threads)), threads, 0, add4, bind(unsafe.Offsetof(add4.N), rows, fours))
}

// embed reads a table row by row, or out of panels.
func (c *lowering) embed(o backend.Embed) error {
	w, y := c.p.Weights[o.Table], c.info(o.Y)
	m, err := c.l.matrix(w)
	if err != nil {
		return err
	}
	g := line(each(y.Rows, 1, 1))
	if m.panels {
		a := cuda.EmbedPackedArgs{IDs: c.value(o.Ids), Table: m.args(c.weight(o.Table)), Y: c.value(o.Y), Scale: o.Scale, Row0: int32(o.Row0)}
		return add(c, "embed_packed_"+m.stored.String(), g, across(w.Cols, 256), 0, a)
	}
	if !plain(m.stored) {
		return backend.Unsupported(name, "weight "+w.Name, "no kernel looks up rows of "+m.stored.String())
	}
	a := cuda.EmbedArgs{
		IDs: c.value(o.Ids), Table: c.weight(o.Table), Y: c.value(o.Y), Scale: o.Scale,
		Cols: int32(w.Cols), Row0: int32(o.Row0), TableRows: int32(w.Rows),
	}
	return add(c, "embed_"+m.stored.String(), g, across(w.Cols, 256), 0, a, bind(unsafe.Offsetof(a.Rows), y.Rows, 1))
}

// mixture is the two products of experts and the rooms between them.
type mixture struct {
	up, down          matrix
	first, second     product
	blocks            int // of rows, at most
	order, place, own int64
	hidden, out       int64
	end               int64
}

// rows is how many rows the blocks have.
func (m mixture) rows() int { return m.blocks * m.first.Rows }

// mixture plans the mixture for a variant's rows. What gate and up give lies behind the packed rows;
// what down gives lies where both were. Rows of an expert begin at a multiple of a block's.
func (c *lowering) mixture(o backend.Experts) (m mixture, err error) {
	if m.up, err = c.l.matrix(c.p.Weights[o.GateUp]); err != nil {
		return m, err
	}
	if m.down, err = c.l.matrix(c.p.Weights[o.Down]); err != nil {
		return m, err
	}
	picks, experts := c.rows(c.info(o.X).Rows)*o.Top, max(1, m.up.Experts)
	mean := max(1, picks/experts) // of an expert, which kernels are chosen by
	block := c.chosen(m.up, mean, mean, 0).Rows
	m.blocks = ceil(picks, block) + min(picks, experts)
	m.order = counters
	m.place = m.order + up(4*int64(m.blocks*block), align)
	m.own = m.place + up(4*int64(picks), align)
	begin := m.own + up(4*int64(m.blocks), align)
	rows := m.blocks * block
	m.first = c.chosen(m.up, mean, rows, begin)
	m.hidden, m.out = m.first.end, begin
	behind := max(m.hidden+up(8*int64(rows)*int64(o.Width), align), m.out+up(4*int64(rows)*int64(m.down.Rows), align))
	m.second = c.chosen(m.down, mean, rows, behind)
	if !m.second.packed { // gated rows lie there as they are
		m.second.end += up(4*int64(rows)*int64(o.Width), align)
	}
	m.end = m.second.end
	return m, nil
}

// experts sorts the picks by expert, multiplies block by block, and adds up.
func (c *lowering) experts(o backend.Experts) error {
	m, err := c.mixture(o)
	if err != nil {
		return err
	}
	for _, w := range []matrix{m.up, m.down} {
		if why := w.multiplies(); why != "" {
			return backend.Unsupported(name, "weight "+w.Name, why)
		}
	}
	if m.first.Rows != m.second.Rows || m.first.packed != m.second.packed {
		return backend.Unsupported(name, "weights "+m.up.Name+" and "+m.down.Name, "their kernels take other blocks of rows")
	}
	x := c.info(o.X)
	order := cuda.OrderArgs{
		IDs: c.value(o.Ids), Order: c.room(m.order), Place: c.room(m.place), Owner: c.room(m.own),
		Top: int32(o.Top), Experts: int32(m.up.Experts), Block: int32(m.first.Rows), Blocks: int32(m.blocks),
	}
	threads := lanes(max(m.blocks, m.up.Experts), 1024)
	if err := add(c, "experts_order", line(fixed(1)), threads, 8*m.up.Experts, order, bind(unsafe.Offsetof(order.Picks), x.Rows, o.Top)); err != nil {
		return err
	}
	multiply := c.expertsPacked
	if !m.first.packed {
		multiply = c.expertsF32
	}
	if err := multiply(o, m); err != nil {
		return err
	}
	a := cuda.CombineArgs{X: c.room(m.out), Place: order.Place, Weights: c.value(o.Weights), Y: c.value(o.Y), Cols: int32(m.down.Rows), Top: int32(o.Top)}
	return add(c, "experts_combine", line(each(x.Rows, 1, 1)), across(m.down.Rows, 256), 0, a)
}

// expertsPacked is both products of packed rows and the gates between.
func (c *lowering) expertsPacked(o backend.Experts, m mixture) error {
	if err := c.pack(m.first, c.value(o.X), c.room(m.order), m.up.Cols, fixed(m.rows())); err != nil {
		return err
	}
	if err := c.expert(m, m.first, m.up, c.weight(o.GateUp), c.weight(o.GateUpBias), m.hidden); err != nil {
		return err
	}
	if err := c.gluPack(m.second, c.room(m.hidden), o.Width, o.Activation, fixed(m.rows())); err != nil {
		return err
	}
	return c.expert(m, m.second, m.down, c.weight(o.Down), c.weight(o.DownBias), m.out)
}

// expertsF32 is the same of rows as they are: the first product reads X by the order.
func (c *lowering) expertsF32(o backend.Experts, m mixture) error {
	a := cuda.ExpertsArgs{Order: c.room(m.order), Owner: c.room(m.own)}
	multiply := func(p product, w matrix, a cuda.ExpertsArgs) error {
		a.In, a.Out = int32(w.Cols), int32(w.Rows)
		b := p.Blocks(w.Rows, m.rows(), 1)
		return add(c, p.Kernel, grid{fixed(b[0]), fixed(b[1]), fixed(b[2])}, p.Threads, p.Shared, a)
	}
	a.X, a.W, a.Bias, a.Y = c.value(o.X), c.weight(o.GateUp), c.weight(o.GateUpBias), c.room(m.hidden)
	if err := multiply(m.first, m.up, a); err != nil {
		return err
	}
	if err := c.gated(a.Y, c.room(m.second.x), o.Width, o.Activation, fixed(m.rows())); err != nil {
		return err
	}
	a.X, a.W, a.Bias, a.Y, a.Placed = c.room(m.second.x), c.weight(o.Down), c.weight(o.DownBias), c.room(m.out), 1
	return multiply(m.second, m.down, a)
}

// expert is one of the two products of packed rows.
func (c *lowering) expert(m mixture, p product, w matrix, at, bias cuda.Ptr, y int64) error {
	a := w.args(at)
	a.X, a.Sums, a.XSteps, a.Bias, a.Y = c.room(p.x), c.room(p.sums), int32(p.to.ScaleSteps(w.Cols)), bias, c.room(y)
	a.Experts, a.Rows = c.room(m.own), int32(m.rows())
	b := p.Blocks(w.Rows, m.rows(), 1)
	g := grid{fixed(b[0]), fixed(b[1]), fixed(b[2])}
	return add(c, p.Kernel, g, p.Threads, p.Shared, a)
}

func ceil(n, d int) int { return (n + d - 1) / d }
