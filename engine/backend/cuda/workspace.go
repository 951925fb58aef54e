package cuda

import (
	"vapp.dev/engine/backend"
	"vapp.dev/kernels"
	"vapp.dev/kernels/cuda"
)

// The workspace begins with counters for blocks that share sums: those of products, then those of attention, in bytes. They
// are zero before and after every launch. Ops run one after the other, and the data of each begins behind the counters.
const (
	productCounters   = 8 << 10
	attentionCounters = 56 << 10
	counters          = productCounters + attentionCounters
)

// Workspace returns the largest workspace of an op, in the steps of any variant. It rejects
// shapes that no kernel will support.
func (l layout) Workspace(p *backend.Program) (int64, error) {
	if err := p.Check(); err != nil {
		return 0, err
	}
	most := int64(counters)
	for _, v := range variants(p.Bucket) {
		c := lowering{l: l, p: p, v: v}
		for _, op := range p.Ops {
			n, err := c.workspaceEnd(op)
			if err != nil {
				return 0, err
			}
			most = max(most, n)
		}
	}
	return most, nil
}

// workspaceEnd returns the end offset of an op's data in the workspace.
func (c *lowering) workspaceEnd(op backend.Op) (int64, error) {
	switch o := op.(type) {
	case backend.Linear:
		m, err := c.l.matrix(c.p.Weights[o.W])
		return c.product(m, c.rows(c.info(o.X).Rows), counters).end, err
	case backend.Attention:
		a, err := c.attention(o)
		return a.end, err
	case backend.Experts:
		m, err := c.mixture(o)
		return m.end, err
	case backend.DeltaNet:
		if c.v.few() {
			return counters, nil
		}
		return counters + up(cuda.DeltaWork(c.rows(c.info(o.QKV).Rows), o.KeyHeads, o.ValueHeads), align), nil
	case backend.Sample:
		return c.sampling().end, nil
	case backend.DraftInput, backend.Verify:
		return counters + up(4*int64(c.rows(backend.PerToken)), align), nil
	}
	return c.gathered(op), nil
}

// sampling is the plan of Sample: how many slices a row of logits is split into, and
// workspace offsets of the unedited logits and of the data that slices share.
type sampling struct {
	slices           int
	raw, shared, end int64
}

func (c *lowering) sampling() sampling {
	rows := c.rows(backend.PerSample)
	s := sampling{slices: cuda.SampleSlices(rows, c.p.Vocab, c.l.sms), raw: counters}
	s.shared = s.raw + up(4*int64(rows)*int64(c.p.Vocab), align)
	s.end = s.shared + int64(rows)*cuda.SampleWorkspace
	return s
}

// product is one product with a matrix: its kernel and its offsets in the workspace.
type product struct {
	cuda.Linear
	to               cuda.Rounding // format that X is rounded to
	packed           bool          // X is packed first; else it is read unpacked
	splits           int
	minima           bool  // it reads the sums of X for each step
	picks, gathers   bool  // it has PicksArgs; it reads the rows of X by the order of places
	most             int   // rows in the library's layout of group scales, else 0
	x, sums, partial int64 // offsets; partial is the library's workspace if it computes the product
	end              int64 // end of the data
}

// chooseLinear returns the kernel for a matrix and a number of rows, and what it rounds X to.
func (l layout) chooseLinear(m matrix, rows int) (k cuda.Linear, to cuda.Rounding, ok bool) {
	if m.blas {
		k, to = cuda.ChoosePlain(m.stored, rows), cuda.RoundsTo(m.stored)
		if m.RoundInputs {
			to = cuda.Rounding{Format: m.stored, Group: m.InputGroup()}
		}
		return k, to, true
	}
	if m.RoundInputs {
		k, ok = cuda.ChooseRounded(m.stored, rows)
		to = cuda.Rounding{Format: m.stored, Group: m.InputGroup()}
	} else {
		k, ok = cuda.ChooseLinear(m.stored, rows)
		to = cuda.RoundsTo(m.stored)
	}
	return k.Wide(m.stored, rows, l.arch()), to, ok
}

// planProduct plans a product without splits. It takes the kernel for by rows (the mean of an
// expert) and sizes the workspace, which begins at offset at, for rows rows.
func (c *lowering) planProduct(m matrix, by, rows int, at int64) product {
	l, to, ok := c.l.chooseLinear(m, by)
	if !ok && m.stored == kernels.F32 {
		l = cuda.Linear{Kernel: "linear_f32", Rows: 4, Threads: 256}
		if m.Experts > 0 {
			l = cuda.ChooseExperts(by)
		}
		return product{Linear: l, splits: 1, x: at, end: at}
	}
	if !ok { // a kernel that does not exist yet
		l.Rows = panel
	}
	p := product{Linear: l, to: to, packed: true, splits: 1, minima: cuda.ReadsSums(m.stored), x: at}
	if l.Library && to.Group > 0 {
		p.most = rows
	}
	x, sums := to.Bytes(rows, m.Cols)
	p.sums = at + up(x, align)
	p.partial = p.sums + up(sums, align)
	p.end = p.partial
	return p
}

// product plans a product of rows rows. Its workspace begins at offset at.
func (c *lowering) product(m matrix, rows int, at int64) product {
	p := c.planProduct(m, rows, rows, at)
	if !p.packed || p.Kernel == "" {
		return p
	}
	if p.Library {
		p.end = p.partial + backend.CUBLASLtWorkspace
		return p
	}
	splits := p.Splits(m.Rows, m.Cols, rows, c.l.sms)
	if n, count := p.PartialBytes(m.Rows, rows, splits); 4*count <= productCounters {
		p.splits, p.end = splits, p.partial+up(n, align)
	}
	return p
}
