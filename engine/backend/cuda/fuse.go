package cuda

import (
	"slices"
	"unsafe"

	"vapp.dev/engine/backend"
	"vapp.dev/kernels"
	"vapp.dev/kernels/cuda"
)

// packedX describes packed rows that the previous op left for the next op: in the workspace, or in place of the value.
type packedX struct {
	op      int // the op that reads them
	value   backend.Value
	to      cuda.Rounding
	order   int32
	inPlace bool
}

// packedFor reports whether X of a product is packed already.
func (c *lowering) packedFor(x backend.Value, p product) bool {
	return c.left == packedX{c.now, x, p.to, orderOf(p), c.left.inPlace}
}

// keepPacked records that x is packed for the next op in the format of p. Whether it is in place follows from the op before.
func (c *lowering) keepPacked(x backend.Value, p product) {
	c.left = packedX{c.now + 1, x, p.to, orderOf(p), c.packedFor(x, p) && c.left.inPlace}
}

// packedAt returns where the packed rows of x for product p are, and their sums.
func (c *lowering) packedAt(x backend.Value, p product) (at, sums cuda.Ptr) {
	if c.left.inPlace && p.to.Narrow() {
		return c.narrowIn(x, p)
	}
	if c.left.inPlace {
		return c.value(x), 0
	}
	return c.workspace(p.x), c.workspace(p.sums)
}

// packedTwice reports whether X of a product is packed in place of the value, besides the rows that another product takes.
func (c *lowering) packedTwice(x backend.Value, p product) bool {
	return c.now <= c.twice.op && c.twice == packedX{c.twice.op, x, p.to, orderOf(p), true}
}

// orderOf returns the layout of packed X: PackArgs.Words.
func orderOf(p product) int32 {
	if p.Plain || p.gathers {
		return 2
	}
	return flag(p.Words)
}

// consumer returns the product that the op behind op at makes of y, if that product packs its rows.
// The op that computes y can then pack them in the same pass. last means that no other op
// reads y unpacked; further products of y use the same packed rows.
func (c *lowering) consumer(at int, y backend.Value) (p product, last, ok bool) {
	end := at + 1
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
		p.minima, p.Library = p.minima || q.minima, p.Library || q.Library
	}
	freed := c.info(y).Freed
	return p, freed > 0 && freed <= end, ok
}

// second returns what y is packed as for products behind op at that do not take it as p does, and the last of the products
// of y. There is one if it is bf16, p's rows are 8-bit numbers, and nothing else reads y, whose place it takes. The products
// leave the rows that are packed for p as they are.
func (c *lowering) second(at int, y backend.Value, p product) (q product, end int, ok bool) {
	for end = at; ; end++ {
		o, is := c.opAt(end + 1).(backend.Linear)
		if !is || o.X != y {
			break
		}
		m, err := c.l.matrix(c.p.Weights[o.W])
		if err != nil || m.multiplies() != "" {
			return q, end, false // lowering that op returns the error
		}
		r := c.product(m, c.rows(c.info(y).Rows), counters)
		switch {
		case !r.packed || r.partial < p.partial:
			return q, end, false
		case r.to == p.to && orderOf(r) == orderOf(p):
		case r.to.Format != kernels.BF16 || r.minima || ok && orderOf(r) != orderOf(q):
			return q, end, false
		default:
			q, ok = r, true
		}
	}
	v := c.info(y)
	bytes, _ := q.to.Bytes(c.rows(v.Rows), v.Cols)
	return q, end, ok && p.to.Narrow() && v.Freed > 0 && v.Freed <= end+1 && bytes <= v.Bytes
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
	blocks, threads := p.to.Grid(s, most, n, c.v.rows)
	g := grid{fixed(blocks[0]), fixed(blocks[1]), fixed(blocks[2])}
	if rows.bound { // tiles of 8
		g[1] = rows
		g[1].over *= 8
	}
	return add(c, p.to.Kernel(s), g, threads, 0, a, fields...)
}

// pack packs rows of n numbers for the matrix units; order selects the rows, or 0. It also does what the ops
// before left to it.
func (c *lowering) pack(p product, x, order cuda.Ptr, n int, rows dimension) error {
	a := c.packInto(p, x, n)
	a.Order, a.Rows = order, int32(rows.add)
	if c.gate == 0 && c.stored == nil {
		return launchPack(c, p, cuda.FromRows, n, rows, a, unsafe.Offsetof(a.Rows))
	}
	b := cuda.StorePackArgs{Pack: a, Gate: c.gate}
	c.gate = 0
	if err := launchPack(c, p, cuda.FromAttention, n, rows, b, unsafe.Offsetof(b.Pack)+unsafe.Offsetof(b.Pack.Rows)); err != nil || c.stored == nil {
		return err
	}
	return c.storeBeside(unsafe.Offsetof(b.Beside), 0)
}

// storing is a StoreKV that a launch of a later op does.
type storing struct {
	op     backend.StoreKV
	args   cuda.StoreArgs
	bytes  int // of a number
	shared int
	waits  bool // for a norm that is packed, behind the product of attention's output
}

// storeBeside makes the last launch also store the keys and values that storeKV left: by blocks of its own, one for each
// head, in dimension dim of the grid. Its StoreBeside is at an offset of the arguments.
func (c *lowering) storeBeside(at uintptr, dim int) error {
	s, l := c.stored, &c.out[len(c.out)-1]
	c.stored = nil
	a := (*cuda.StoreBeside)(unsafe.Pointer(&l.args[at]))
	a.Across, a.Bytes, a.Store = int32(l.blocks[dim]), int32(s.bytes), s.args
	l.blocks[dim] += int(s.args.Pages.KVHeads)
	l.shared = s.shared
	rows, err := c.symbol(each(c.info(s.op.K).Rows, 1, 1), int(at+unsafe.Offsetof(a.Store)+unsafe.Offsetof(a.Store.Rows)), 0)
	l.symbols = append(l.symbols, rows)
	return err
}

// settle launches the store that waits, unless op leaves its keys and values as they are: then a norm may still take it. nil
// is the end of the program.
func (c *lowering) settle(op backend.Op) error {
	if c.stored == nil || !c.stored.waits {
		return nil
	}
	var writes []backend.Value
	switch o := op.(type) {
	case backend.Linear:
		writes = []backend.Value{o.Y}
		if g, ok := c.opAt(c.now + 1).(backend.GLU); ok {
			writes = append(writes, g.Y)
		}
	case backend.AllReduce:
		writes = []backend.Value{o.X}
	case backend.Norm:
		writes = []backend.Value{o.X, o.Residual}
		if _, last, packs := c.consumer(c.now, o.Y); !packs || !last || !c.wholeRows(o) { // else it is packed elsewhere
			writes = append(writes, o.Y)
		}
	case backend.Add:
		writes = []backend.Value{o.X, o.Into}
	}
	k := c.stored.op
	if len(writes) > 0 && !slices.ContainsFunc(writes, func(v backend.Value) bool { return c.overlap(v, k.K) || c.overlap(v, k.V) }) {
		return nil
	}
	s := c.stored
	c.stored = nil
	return c.launchStore(s)
}

// overlap reports whether two values share memory.
func (c *lowering) overlap(v, w backend.Value) bool {
	if v == backend.NoValue || w == backend.NoValue {
		return false
	}
	a, b := c.info(v), c.info(w)
	return a.Offset < b.Offset+b.Bytes && b.Offset < a.Offset+a.Bytes
}

// attentionPacks is how attention, or the launch that joins it, packs its output for the product of op linear. store and gate
// are the ops between them, whose work the launch that joins does too.
type attentionPacks struct {
	linear int
	p      product
	store  *backend.StoreKV
	gate   backend.Value
}

// packsOutput returns how attention's output is packed in place, if it is: nothing else reads it, and heads are whole steps of
// the product. joins means that a launch of its own writes it.
func (c *lowering) packsOutput(o backend.Attention, joins bool) (k attentionPacks, ok bool) {
	at, y := c.now+1, c.info(o.Y)
	k.gate = backend.NoValue
	if s, is := c.opAt(at).(backend.StoreKV); is {
		if c.info(s.K).Rows != y.Rows {
			return k, false
		}
		k.store, at = &s, at+1
	}
	if g, is := c.opAt(at).(backend.Gate); is {
		if !joins || g.X != o.Y || c.info(g.Gate).Cols != y.Cols {
			return k, false
		}
		k.gate, at = g.Gate, at+1
	}
	if l, is := c.opAt(at).(backend.Linear); !is || l.X != o.Y {
		return k, false
	}
	p, last, packs := c.consumer(at-1, o.Y)
	if !packs || !last || p.to.Narrow() || p.minima || o.HeadDim%cuda.StepCols != 0 || c.overlap(o.Y, o.Q) {
		return k, false
	}
	x, _ := p.to.Bytes(c.rows(y.Rows), y.Cols)
	k.linear, k.p = at, p
	return k, x <= y.Bytes
}

// packOutput sets the arguments of the launch that packs attention's output.
func (c *lowering) packOutput(o backend.Attention, k attentionPacks, a *cuda.AttentionArgs) {
	a.Y, a.Packed, a.Words, a.F16 = 0, a.Y, orderOf(k.p), flag(k.p.to.Format == kernels.F16)
	c.left = packedX{k.linear, o.Y, k.p.to, orderOf(k.p), true}
}

// storesLater reports whether the next launch packs as many rows as a StoreKV has, whose op is the current one. Between
// the two only that launch runs, which writes neither keys nor values.
func (c *lowering) storesLater(rows backend.Rows) bool {
	at := c.now + 1
	if at < len(c.p.Ops) {
		if g, ok := c.p.Ops[at].(backend.Gate); ok && c.gatesLater(at, g) {
			at++
		}
	}
	if at >= len(c.p.Ops) {
		return false
	}
	o, ok := c.p.Ops[at].(backend.Linear)
	if !ok || c.info(o.X).Rows != rows {
		return false
	}
	_, _, packs := c.consumer(at-1, o.X)
	return packs
}

// gatesLater reports whether the packing of X for the op behind op at can gate it: nothing else reads X gated.
func (c *lowering) gatesLater(at int, o backend.Gate) bool {
	if c.info(o.Gate).Cols != c.info(o.X).Cols {
		return false
	}
	_, last, ok := c.consumer(at, o.X)
	return ok && last
}

// chain is a run of norms and sums of rows that end with a norm which is packed: one launch does them. x becomes
// norm(x)·own + norm(other)·others with cuda.ChainJoined, then norm(x)·post with cuda.ChainPost; it is added to the residual,
// the sum is multiplied by scale, and the op at end normalises it.
type chain struct {
	end                      int // 0: none
	kinds                    int32
	x, other, residual       backend.Value
	own, others, post, scale backend.WeightID
}

// opAt returns op at of the program; nil: there are fewer.
func (c *lowering) opAt(at int) backend.Op {
	if at < len(c.p.Ops) {
		return c.p.Ops[at]
	}
	return nil
}

// inPlace returns op at as a norm of whole rows in place, with weights alone and without a residual.
func (c *lowering) inPlace(at int) (backend.Norm, bool) {
	o, ok := c.opAt(at).(backend.Norm)
	return o, ok && o.Y == o.X && o.Residual == backend.NoValue && c.wholeRows(o) && o.Offset == 0 && scaleOf(o) == 1
}

// wholeRows reports whether a norm is that of norm_pack: the mean square of a whole row, without a gate.
func (c *lowering) wholeRows(o backend.Norm) bool {
	return !o.Gated && !o.Plain && (o.Segment == 0 || o.Segment == c.info(o.Y).Cols)
}

// chainFrom returns the chain that op at begins. No op behind it reads what it leaves in another state than its ops do.
func (c *lowering) chainFrom(at int) (k chain, ok bool) {
	k = chain{x: backend.NoValue, other: backend.NoValue, own: backend.NoWeight, others: backend.NoWeight, post: backend.NoWeight, scale: backend.NoWeight}
	i, norms := at, []backend.Norm(nil)
	if one, is := c.inPlace(i); is {
		k.x = one.X
		other, is := c.inPlace(i + 1)
		if sum, added := c.opAt(i + 2).(backend.Add); is && added && sum == (backend.Add{X: other.X, Into: k.x, Scale: backend.NoWeight}) {
			k.kinds, k.other, k.own, k.others = cuda.ChainJoined, other.X, one.W, other.W
			norms, i = append(norms, one, other), i+3
			one, is = c.inPlace(i)
		} else {
			is = true
		}
		if is && one.X == k.x {
			k.kinds, k.post = k.kinds|cuda.ChainPost, one.W
			norms, i = append(norms, one), i+1
		}
	}
	end, is := c.opAt(i).(backend.Norm)
	if sum, added := c.opAt(i).(backend.Add); added && (k.kinds == 0 || sum.X == k.x) {
		k.x, k.residual, k.scale, i = sum.X, sum.Into, sum.Scale, i+1
		end, is = c.opAt(i).(backend.Norm)
		is = is && end.X == k.residual && end.Residual == backend.NoValue
	} else {
		is = is && k.kinds != 0 && end.X == k.x && end.Residual != backend.NoValue
		k.residual = end.Residual
	}
	if !is || !c.wholeRows(end) || slices.ContainsFunc(norms, func(n backend.Norm) bool { return n.Eps != end.Eps }) {
		return k, false
	}
	for _, v := range []backend.Value{k.x, k.other} {
		if v == backend.NoValue {
			continue
		}
		of, y := c.info(v), c.info(end.Y)
		if k.kinds != 0 && (of.Freed == 0 || of.Freed > i+1) || of.Rows != y.Rows || of.Cols != y.Cols || v == end.Y {
			return k, false
		}
	}
	_, last, packs := c.consumer(i, end.Y)
	for _, v := range []backend.Value{k.x, k.other} { // Y may have the memory of a value that was freed before it was made
		if v != backend.NoValue && !last && c.info(v).Freed > 0 && c.info(v).Freed <= i {
			return k, false
		}
	}
	k.end = i
	return k, packs && end.Y != k.residual
}

// chained begins the chain of the current op, if there is one: its ops up to the last have no launches.
func (c *lowering) chained() bool {
	k, ok := c.chainFrom(c.now)
	if ok {
		c.chain = k
	}
	return ok
}

// normPack normalises rows and packs them for the next op's product, behind the chain that ends with this norm. done is
// false if it cannot.
func (c *lowering) normPack(o backend.Norm) (done bool, err error) {
	y := c.info(o.Y)
	if !c.wholeRows(o) {
		return false, nil
	}
	p, last, ok := c.consumer(c.now, o.Y)
	if !ok || !last && o.Y == o.X { // X is still read
		return false, nil
	}
	a := cuda.NormPackArgs{Pack: c.packInto(p, c.value(o.X), y.Cols), Residual: c.value(o.Residual), W: c.weight(o.W), Eps: o.Eps, Offset: o.Offset, Scale: scaleOf(o)}
	a.Pack.XBF16 = c.bf16(o.X)
	if !last {
		a.Plain = c.value(o.Y)
		if q, end, ok := c.second(c.now, o.Y, p); ok {
			a.PlainWords = 1 + orderOf(q)
			c.twice = packedX{end, o.Y, q.to, orderOf(q), true}
		}
	}
	c.keepPacked(o.Y, p)
	rows, at := each(y.Rows, 1, 1), unsafe.Offsetof(a.Pack)+unsafe.Offsetof(a.Pack.Rows)
	k := c.chain
	if k.end != c.now || k.end == 0 {
		return true, c.storingPack(p, y.Rows, launchPack(c, p, cuda.FromNorm, y.Cols, rows, a, at))
	}
	a.Pack.X, a.Pack.XBF16, a.Residual = c.value(k.x), c.bf16(k.x), c.value(k.residual)
	b := cuda.ChainPackArgs{Norm: a, Kinds: k.kinds, WOwn: c.weight(k.own), WOther: c.weight(k.others), WPost: c.weight(k.post), SumScale: c.weight(k.scale)}
	if k.kinds&cuda.ChainJoined != 0 {
		b.Other = c.value(k.other)
	}
	return true, c.storingPack(p, y.Rows, launchPack(c, p, cuda.FromChain, y.Cols, rows, b, unsafe.Offsetof(b.Norm)+at))
}

// storingPack makes the launch of a norm that is packed store the keys and values that wait for it; err is the launch's error.
func (c *lowering) storingPack(p product, rows backend.Rows, err error) error {
	if err != nil || c.stored == nil || !c.stored.waits || p.to.Narrow() || c.info(c.stored.op.K).Rows != rows {
		return err
	}
	return c.storeBeside(unsafe.Offsetof(cuda.NormPackArgs{}.Beside), 0)
}

// headsPack normalises the segments of rows and packs them for the next op's product, if that is their only reader. done is
// false if it cannot.
func (c *lowering) headsPack(o backend.Norm) (done bool, err error) {
	y := c.info(o.Y)
	if o.Plain || o.Residual != backend.NoValue || o.Segment == 0 || o.Segment > cuda.HeadsPackSegment || y.Cols/o.Segment > cuda.HeadsPackSegments {
		return false, nil
	}
	p, last, ok := c.consumer(c.now, o.Y)
	if !ok || !last {
		return false, nil
	}
	a := cuda.HeadsPackArgs{Pack: c.packInto(p, c.value(o.X), y.Cols), W: c.weight(o.W), Eps: o.Eps, Offset: o.Offset, Scale: scaleOf(o), Segment: int32(o.Segment)}
	if o.Gated {
		a.Gate = c.value(o.Gate)
	}
	c.keepPacked(o.Y, p)
	return true, launchPack(c, p, cuda.FromHeads, y.Cols, each(y.Rows, 1, 1), a, unsafe.Offsetof(a.Pack)+unsafe.Offsetof(a.Pack.Rows))
}

// gluPack gates rows of 2·n numbers, in bf16 or float32, and packs them for a product.
func (c *lowering) gluPack(p product, x cuda.Ptr, bf16 int32, n int, act backend.Activation, rows dimension) error {
	g := gluArgs(act)
	a := cuda.GLUPackArgs{Pack: c.packInto(p, x, n), Act: g.Act, Paired: g.Paired, Limit: g.Limit, Alpha: g.Alpha, Shift: g.Shift}
	a.Pack.Rows, a.Pack.XBF16 = int32(rows.add), bf16
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

// gates reports whether a product p with m gates its sums and packs them for product q: it has a gate and its up in one
// thread or in neighbours, and what it writes is whole words, without scales and without sums of steps.
func gates(m matrix, p, q product, act backend.Activation) bool {
	if !p.packed || p.Library || !q.packed || q.Library || q.to.Narrow() || q.minima || m.Rows%(2*cuda.StepCols) != 0 {
		return false
	}
	return act.Paired == (m.half == 0) || m.blas
}

// gated sets the arguments of a product that gates, and packs the result at an address for product q.
func (m matrix) gated(a *cuda.LinearArgs, act backend.Activation, q product, at cuda.Ptr) {
	g := gluArgs(act)
	a.Y, a.YBF16 = 0, 0
	a.Gated, a.Act, a.Paired, a.Limit, a.Alpha, a.Shift = at, g.Act, g.Paired, g.Limit, g.Alpha, g.Shift
	a.Words, a.F16 = orderOf(q), flag(q.to.Format == kernels.F16)
	if m.blas && !act.Paired {
		a.Half = a.Out / 2
	}
}

// gatesNarrow reports whether a product p with m gates its sums and rounds them to the 8 bits that product q takes: it has a gate
// and its up in one thread or in neighbours, and there are counters for the blocks of every group.
func gatesNarrow(m matrix, p, q product, act backend.Activation, rows int) bool {
	n, ok := p.GatesNarrow(q.to, m.Rows, rows)
	return ok && q.packed && !q.Plain && 4*n <= attentionCounters && act.Paired == (m.half == 0)
}

// narrowIn returns where rows of x are that are packed in 8 bits in its place, and their scales behind them.
func (c *lowering) narrowIn(x backend.Value, p product) (at, scales cuda.Ptr) {
	v := c.info(x)
	n, _ := p.to.Bytes(c.rows(v.Rows), v.Cols)
	return c.value(x), c.value(x) + cuda.Ptr(up(n, align))
}

// gatedLater returns the GLU that the product p of the current op can compute, and the product that it packs for: each is
// the only reader of the op before it. The packed rows take the place of the GLU's result, where only X of the product may be,
// which is packed elsewhere.
func (c *lowering) gatedLater(o backend.Linear, m matrix, p product) (g backend.GLU, q product, ok bool) {
	g, ok = c.opAt(c.now + 1).(backend.GLU)
	if freed := c.info(o.Y).Freed; !ok || c.left.inPlace || g.X != o.Y || freed == 0 || freed > c.now+2 {
		return g, q, false
	}
	q, last, ok := c.consumer(c.now+1, g.Y)
	y := c.info(g.Y)
	x, scales := q.to.Bytes(c.rows(y.Rows), y.Cols)
	switch {
	case !ok || !last:
		return g, q, false
	case q.to.Narrow():
		return g, q, up(x, align)+scales <= y.Bytes && gatesNarrow(m, p, q, g.Activation, c.rows(y.Rows))
	}
	return g, q, x <= y.Bytes && gates(m, p, q, g.Activation)
}

// glu appends a gated activation. Its result is only packed if the next op's product is its
// only reader.
func (c *lowering) glu(o backend.GLU) error {
	y := c.info(o.Y)
	if c.left.inPlace && c.left.op == c.now+1 && c.left.value == o.Y {
		return nil // the product before computes it
	}
	if p, last, ok := c.consumer(c.now, o.Y); ok && last {
		c.keepPacked(o.Y, p)
		return c.gluPack(p, c.value(o.X), c.bf16(o.X), y.Cols, o.Activation, each(y.Rows, 1, 1))
	}
	return c.gated(c.value(o.X), c.bf16(o.X), c.value(o.Y), y.Cols, o.Activation, each(y.Rows, 1, 1))
}

// gated appends the gating of rows of 2·n numbers at x, in bf16 or float32; each row of y gets n.
func (c *lowering) gated(x cuda.Ptr, bf16 int32, y cuda.Ptr, n int, act backend.Activation, rows dimension) error {
	a := gluArgs(act)
	a.X, a.XBF16, a.Y, a.Cols, a.Rows = x, bf16, y, int32(n), int32(rows.add)
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

// orderedFor returns the mixture whose rows the launch of a Route can also sort: the next op, or the one behind its norm, of
// few rows. Between them no launch writes to the workspace.
func (c *lowering) orderedFor(o backend.Route) (at int, e backend.Experts, ok bool) {
	const most = 32 // warps of the block
	at = c.now + 1
	if n, is := c.opAt(at).(backend.Norm); is {
		if next, is := c.opAt(at + 1).(backend.Experts); !is || next.X != n.Y {
			return at, e, false
		}
		at++
	}
	e, ok = c.opAt(at).(backend.Experts)
	return at, e, ok && e.Ids == o.Ids && e.Top == o.Top && c.rows(c.info(o.Logits).Rows) <= most && c.info(e.X).Rows == c.info(o.Logits).Rows
}

// normLater reports whether the packing for the experts of the next op can normalise their rows: by the order of places of few
// rows, each as often as an expert takes it.
func (c *lowering) normLater(o backend.Norm) bool {
	e, ok := c.opAt(c.now + 1).(backend.Experts)
	freed := c.info(o.Y).Freed
	if !ok || e.X != o.Y || o.X == o.Y || o.Residual != backend.NoValue || !c.wholeRows(o) || freed == 0 || freed > c.now+2 {
		return false
	}
	m, err := c.mixture(e)
	return err == nil && m.first.packed && (m.first.gathers || c.v.few())
}
