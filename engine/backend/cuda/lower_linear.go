package cuda

import (
	"fmt"
	"math"
	"strings"
	"unsafe"

	"vapp.dev/engine/backend"
	"vapp.dev/kernels/cuda"
)

// linear appends a product: the packing of X, then the kernel.
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
	a.Bias, a.Y, a.YBF16 = c.weight(o.Bias), c.value(o.Y), c.bf16(o.Y)
	if !p.packed {
		a.X = c.value(o.X)
		g := grid{each(x.Rows, 1, p.Rows), fixed(ceil(m.Rows, 8)), fixed(1)}
		return add(c, p.Kernel, g, p.Threads, 0, a, bind(unsafe.Offsetof(a.Rows), x.Rows, 1))
	}
	if c.packedTwice(o.X, p) {
		a.X = c.value(o.X)
		c.left.op++ // a later product may take what was packed first
	} else {
		if !c.packedFor(o.X, p) {
			if err := c.pack(p, c.value(o.X), 0, m.Cols, each(x.Rows, 1, 1)); err != nil {
				return err
			}
		}
		c.keepPacked(o.X, p)
		a.X, a.Sums = c.packedAt(o.X, p)
	}
	if g, q, ok := c.gatedLater(o, m, p); ok {
		m.gated(&a, g.Activation, q, c.value(g.Y))
		if q.to.Narrow() {
			_, a.GatedScales = c.narrowIn(g.Y, q)
			a.Y, a.GatedArrived = c.value(o.Y), c.workspace(productCounters) // attention uses those counters, in other launches
		}
		c.left = packedX{c.now + 2, g.Y, q.to, orderOf(q), true}
	}
	if !p.Library {
		return c.multiply(p, a, m, x.Rows)
	}
	return c.library(p, a, m, x.Rows, o.Bias != backend.NoWeight)
}

// multiply launches a product of packed rows; rows is their symbol.
func (c *lowering) multiply(p product, a cuda.LinearArgs, m matrix, rows backend.Rows) error {
	a.XSteps, a.Splits = int32(p.to.ScaleSteps(m.Cols)), int32(p.splits)
	if p.splits > 1 {
		a.Partial, a.Arrived = c.workspace(p.partial), c.workspace(0)
	}
	b := p.Blocks(m.Rows, 1, p.splits)
	g := grid{each(rows, 1, p.Rows), fixed(b[1]), fixed(b[2])}
	return add(c, p.Kernel, g, p.Threads, p.Shared, a, bind(unsafe.Offsetof(a.Rows), rows, 1))
}

// library launches a product of cuBLASLt. For 8-bit inputs with float32 results, it can only
// add a bias in bf16, so a kernel adds the bias.
func (c *lowering) library(p product, a cuda.LinearArgs, m matrix, rows backend.Rows, biased bool) error {
	b := cuda.LibraryArgs{W: a.W, X: a.X, Bias: a.Bias, Y: a.Y, Workspace: c.workspace(p.partial), In: a.In, Out: a.Out, Most: int32(c.rows(rows)), YBF16: a.YBF16}
	scaled := m.count > 0
	if scaled {
		b.Scales, b.Sums, b.Bias, b.Blocks = a.Scales, a.Sums, 0, flag(p.to.Group > 0)
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

// embed appends the lookup in a table, stored row by row or in panels.
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
		return backend.Unsupported(name, "weight "+w.Name, "no kernel looks up rows of "+m.stored.String()+elsewhere)
	}
	a := cuda.EmbedArgs{
		IDs: c.value(o.Ids), Table: c.weight(o.Table), Y: c.value(o.Y), Scale: o.Scale,
		Cols: int32(w.Cols), Row0: int32(o.Row0), TableRows: int32(w.Rows),
	}
	return add(c, "embed_"+m.stored.String(), g, across(w.Cols, 256), 0, a, bind(unsafe.Offsetof(a.Rows), y.Rows, 1))
}

// mixture is the plan of a mixture of experts: its two products and the offsets of their data
// in the workspace.
type mixture struct {
	up, down          matrix
	first, second     product
	blocks            int // maximum number of blocks of rows
	order, place, own int64
	hidden, out       int64
	gates             bool  // the first product gates: there is no hidden
	bytes             int64 // of a number of hidden and out: of float32 or bf16
	end               int64
}

// bf16 returns 1 if hidden and out are bf16.
func (m mixture) bf16() int32 { return flag(m.bytes == 2) }

// rows returns how many rows the blocks have.
func (m mixture) rows() int { return m.blocks * m.first.Rows }

// mixture plans the op for a variant's rows. X is packed in its own order if the first product gathers its rows, else in that of
// places. The results of gate and up, unless they are gated at once, are behind the packed rows; the results of down overwrite both. Rows of an expert begin at a multiple of a
// block's rows.
func (c *lowering) mixture(o backend.Experts) (m mixture, err error) {
	if m.up, err = c.l.matrix(c.p.Weights[o.GateUp]); err != nil {
		return m, err
	}
	if m.down, err = c.l.matrix(c.p.Weights[o.Down]); err != nil {
		return m, err
	}
	picks, experts := c.rows(c.info(o.X).Rows)*o.Top, max(1, m.up.Experts)
	mean := max(1, picks/experts) // rows of an expert, by which kernels are chosen
	// Warpgroups convert an expert's weights once for a block, which therefore holds the rows of nearly all experts.
	// In steps that dense products leave to them they also have the experts of fewer rows.
	if most := max(mean+int(2*math.Sqrt(float64(mean))), min(c.rows(c.info(o.X).Rows), 9)); strings.Contains(c.planProduct(m.up, most, most, 0).Kernel, "_mid_") {
		mean = most
	}
	block := c.planProduct(m.up, mean, mean, 0).Rows
	if other := c.planProduct(m.down, mean, mean, 0).Rows; other != block { // formats whose kernels have other rows
		mean = max(block, other)
		block = c.planProduct(m.up, mean, mean, 0).Rows
	}
	m.blocks = ceil(picks, block) + min(picks, experts)
	m.order = counters
	m.place = m.order + up(4*int64(m.blocks*block), align)
	m.own = m.place + up(4*int64(picks), align)
	begin := m.own + up(4*int64(m.blocks), align)
	rows := m.blocks * block
	m.first = c.planProduct(m.up, mean, rows, begin)
	if k, ok := m.first.Picks(); ok && m.up.Cols%cuda.StepCols == 0 { // row by row there are whole steps
		m.first = c.planProduct(m.up, mean, c.rows(c.info(o.X).Rows), begin)
		m.first.Linear, m.first.picks, m.first.gathers = k, true, true
	}
	m.hidden, m.out = m.first.end, begin
	if m.bytes = 4; c.l.rounds(m.up) && c.l.rounds(m.down) {
		m.bytes = 2
	}
	behind := m.out + up(m.bytes*int64(rows)*int64(m.down.Rows), align)
	m.second = c.planProduct(m.down, mean, rows, behind)
	if m.gates = gates(m.up, m.first, m.second, o.Activation); m.gates {
		behind = max(behind, m.first.end)
	} else {
		behind = max(behind, m.hidden+up(2*m.bytes*int64(rows)*int64(o.Width), align))
	}
	m.second = c.planProduct(m.down, mean, rows, behind)
	if k, ok := m.second.Picks(); ok && k.Rows == 128 { // for their last blocks
		m.second.Linear, m.second.picks = k, true
	}
	if !m.second.packed { // gated rows are stored there unpacked
		m.second.end += up(4*int64(rows)*int64(o.Width), align)
	}
	m.end = m.second.end
	return m, nil
}

// experts appends the sorting of rows by expert, the products block by block, and the
// weighted sum.
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
	order := c.order(o, m)
	if c.ordered != c.now {
		threads := lanes(max(m.blocks, m.up.Experts), 1024)
		if err := add(c, "experts_order", line(fixed(1)), threads, 8*m.up.Experts, order, bind(unsafe.Offsetof(order.Picks), x.Rows, o.Top)); err != nil {
			return err
		}
	}
	multiply := c.expertsPacked
	if !m.first.packed {
		multiply = c.expertsF32
	}
	if err := multiply(o, m); err != nil {
		return err
	}
	a := cuda.CombineArgs{X: c.workspace(m.out), Place: order.Place, Weights: c.value(o.Weights), Y: c.value(o.Y), Cols: int32(m.down.Rows), Top: int32(o.Top), XBF16: m.bf16(), YBF16: c.bf16(o.Y)}
	return add(c, "experts_combine", line(each(x.Rows, 1, 1)), across(m.down.Rows, 256), 0, a)
}

// order returns the arguments of the sorting of a mixture's rows.
func (c *lowering) order(o backend.Experts, m mixture) cuda.OrderArgs {
	return cuda.OrderArgs{
		IDs: c.value(o.Ids), Order: c.workspace(m.order), Place: c.workspace(m.place), Owner: c.workspace(m.own),
		Top: int32(o.Top), Experts: int32(m.up.Experts), Block: int32(m.first.Rows), Blocks: int32(m.blocks),
	}
}

// routeOrder appends the routing of rows and the sorting of their picks for the mixture e.
func (c *lowering) routeOrder(r cuda.RouteArgs, rows backend.Rows, e backend.Experts) error {
	m, err := c.mixture(e)
	if err != nil {
		return err
	}
	a := cuda.RouteOrderArgs{Route: r, Order: c.order(e, m)}
	threads := lanes(max(32*c.rows(rows), m.blocks, m.up.Experts), 1024)
	return add(c, "route_order", line(fixed(1)), threads, 8*m.up.Experts, a,
		bind(unsafe.Offsetof(a.Route)+unsafe.Offsetof(a.Route.Rows), rows, 1), bind(unsafe.Offsetof(a.Order)+unsafe.Offsetof(a.Order.Picks), rows, e.Top))
}

// packPicks packs the rows of X, behind the norm that was left to it: by the order of places unless the product gathers.
func (c *lowering) packPicks(o backend.Experts, m mixture) error {
	n, rows, order := c.normed, fixed(m.rows()), c.workspace(m.order)
	if m.first.gathers {
		rows, order = each(c.info(o.X).Rows, 1, 1), 0
	}
	c.normed = nil
	if n == nil {
		return c.pack(m.first, c.value(o.X), order, m.up.Cols, rows)
	}
	a := cuda.NormPackArgs{Pack: c.packInto(m.first, c.value(n.X), m.up.Cols), W: c.weight(n.W), Eps: n.Eps, Offset: n.Offset, Scale: scaleOf(*n)}
	a.Pack.Order, a.Pack.Rows, a.Pack.XBF16 = order, int32(rows.add), c.bf16(n.X)
	return launchPack(c, m.first, cuda.FromNorm, m.up.Cols, rows, a, unsafe.Offsetof(a.Pack)+unsafe.Offsetof(a.Pack.Rows))
}

// expertsPacked appends both products of packed rows and the gating between them.
func (c *lowering) expertsPacked(o backend.Experts, m mixture) error {
	if err := c.packPicks(o, m); err != nil {
		return err
	}
	up := c.expert(m, m.first, m.up, c.weight(o.GateUp), c.weight(o.GateUpBias), m.hidden)
	if m.gates {
		m.up.gated(&up, o.Activation, m.second, c.workspace(m.second.x))
	}
	if err := c.multiplyExperts(m, m.first, m.up, up); err != nil {
		return err
	}
	if !m.gates {
		if err := c.gluPack(m.second, c.workspace(m.hidden), m.bf16(), o.Width, o.Activation, fixed(m.rows())); err != nil {
			return err
		}
	}
	return c.multiplyExperts(m, m.second, m.down, c.expert(m, m.second, m.down, c.weight(o.Down), c.weight(o.DownBias), m.out))
}

// expertsF32 appends the same for unpacked rows: the first product reads X in the sorted
// order.
func (c *lowering) expertsF32(o backend.Experts, m mixture) error {
	a := cuda.ExpertsArgs{Order: c.workspace(m.order), Owner: c.workspace(m.own)}
	multiply := func(p product, w matrix, a cuda.ExpertsArgs) error {
		a.In, a.Out = int32(w.Cols), int32(w.Rows)
		b := p.Blocks(w.Rows, m.rows(), 1)
		return add(c, p.Kernel, grid{fixed(b[0]), fixed(b[1]), fixed(b[2])}, p.Threads, p.Shared, a)
	}
	a.X, a.W, a.Bias, a.Y = c.value(o.X), c.weight(o.GateUp), c.weight(o.GateUpBias), c.workspace(m.hidden)
	if err := multiply(m.first, m.up, a); err != nil {
		return err
	}
	if err := c.gated(a.Y, 0, c.workspace(m.second.x), o.Width, o.Activation, fixed(m.rows())); err != nil {
		return err
	}
	a.X, a.W, a.Bias, a.Y, a.Placed = c.workspace(m.second.x), c.weight(o.Down), c.weight(o.DownBias), c.workspace(m.out), 1
	return multiply(m.second, m.down, a)
}

// expert returns the arguments of one of the two products of packed rows.
func (c *lowering) expert(m mixture, p product, w matrix, at, bias cuda.Ptr, y int64) cuda.LinearArgs {
	a := w.args(at)
	a.X, a.Sums, a.XSteps, a.Bias, a.Y = c.workspace(p.x), c.workspace(p.sums), int32(p.to.ScaleSteps(w.Cols)), bias, c.workspace(y)
	a.Experts, a.Rows, a.YBF16 = c.workspace(m.own), int32(m.rows()), m.bf16()
	return a
}

// multiplyExperts launches one of the two products.
func (c *lowering) multiplyExperts(m mixture, p product, w matrix, a cuda.LinearArgs) error {
	b := p.Blocks(w.Rows, m.rows(), 1)
	if p.Walks() {
		b = p.Walk(w.Rows, m.rows(), c.l.sms)
	}
	g := grid{fixed(b[0]), fixed(b[1]), fixed(b[2])}
	if p.picks {
		return add(c, p.Kernel, g, p.Threads, p.Shared, cuda.PicksArgs{Product: a, Order: c.workspace(m.order), Gathers: flag(p.gathers)})
	}
	return add(c, p.Kernel, g, p.Threads, p.Shared, a)
}

func ceil(n, d int) int { return (n + d - 1) / d }
