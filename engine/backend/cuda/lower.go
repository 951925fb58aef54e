package cuda

import (
	"cmp"
	"unsafe"

	"vapp.dev/engine/backend"
	"vapp.dev/kernels/cuda"
)

// op appends the launches of one op of a checked program. It returns an error that names an
// op without a kernel.
func (c *lowering) op(op backend.Op) error {
	if err := c.settle(op); err != nil {
		return err
	}
	if c.now < c.chain.end || c.now < c.joined {
		return nil // the norm at its end computes this, or the launch before
	}
	switch o := op.(type) {
	case backend.Tokens:
		a := cuda.TokensArgs{Tokens: c.at.step.tokens, Sampled: c.at.sampled, Out: c.value(o.Out)}
		return add(c, "tokens", line(each(backend.PerToken, 1, 256)), 256, 0, a, bind(unsafe.Offsetof(a.Rows), backend.PerToken, 1))
	case backend.StoreTokens:
		return c.storeTokens(o)
	case backend.Embed:
		return c.embed(o)
	case backend.Linear:
		return c.linear(o)
	case backend.Experts:
		return c.experts(o)
	case backend.Angles:
		return c.angles(o)
	case backend.Rope:
		return c.rope(o)
	case backend.LatentRope:
		return c.latentRope(o)
	case backend.HeadLinear:
		return c.headLinear(o)
	case backend.Attention:
		return c.attend(o)
	case backend.StoreKV:
		return c.storeKV(o)
	case backend.Conv:
		return c.conv(o)
	case backend.DeltaNet:
		return c.deltaNet(o)
	case backend.Sample:
		return c.sample(o)
	case backend.DraftInput, backend.Verify, backend.Propose:
		return c.draft(op)
	}
	return c.rowOp(op)
}

// rowOp appends ops that work on each row separately.
func (c *lowering) rowOp(op backend.Op) error {
	switch o := op.(type) {
	case backend.Norm:
		return c.norm(o)
	case backend.GLU:
		return c.glu(o)
	case backend.Add:
		if c.chained() {
			return nil
		}
		a := cuda.AddArgs{X: c.value(o.X), Into: c.value(o.Into), Scale: c.weight(o.Scale), XBF16: c.bf16(o.X)}
		return elements(c, "add", o.Into, a, unsafe.Offsetof(a.N))
	case backend.Activate:
		return c.element("activate", o.X, cuda.ElementsArgs{Act: int32(o.Act)})
	case backend.Gate:
		if c.gatesLater(c.now, o) {
			c.gate = c.value(o.Gate)
			return nil
		}
		a := cuda.ElementsArgs{Gate: c.value(o.Gate)}
		if c.info(o.Gate).Cols == 1 {
			a.Cols = int32(c.info(o.X).Cols)
		}
		return c.element("gate", o.X, a)
	case backend.Softcap:
		return c.element("softcap", o.X, cuda.ElementsArgs{Cap: o.Cap})
	case backend.Concat:
		return c.concat(c.value(o.A), c.info(o.A), c.value(o.B), c.info(o.B), c.value(o.Y))
	case backend.Reorder:
		y := c.info(o.Y)
		a := cuda.ConcatArgs{A: c.value(o.X), B: c.weight(o.Order), Y: c.value(o.Y), NA: int32(c.info(o.X).Cols), NB: int32(y.Cols)}
		return add(c, "reorder", line(each(y.Rows, 1, 1)), across(y.Cols, 256), 0, a)
	case backend.OutputRows:
		return c.concat(c.value(o.X), c.info(o.X), 0, backend.ValueInfo{}, c.at.step.emitted)
	case backend.Gather:
		return c.gather(op, o.X, o.Y, c.at.step.rows, false)
	case backend.GatherLast:
		return c.gather(op, o.X, o.Y, c.at.step.first, true)
	case backend.GatherAccepted:
		return c.gather(op, o.X, o.Y, c.value(o.AcceptedRow), false)
	case backend.Route:
		return c.route(o)
	case backend.Adapt:
		return c.adapt(o)
	}
	return c.between(op)
}

func (c *lowering) norm(o backend.Norm) error {
	if c.chained() {
		return nil
	}
	if done, err := c.normPack(o); done {
		return err
	}
	if done, err := c.headsPack(o); done {
		return err
	}
	if c.normLater(o) {
		c.normed = &o
		return nil
	}
	y := c.info(o.Y)
	a := cuda.NormArgs{
		X: c.value(o.X), Residual: c.value(o.Residual), W: c.weight(o.W), Y: c.value(o.Y),
		Cols: int32(y.Cols), Segment: int32(cmp.Or(o.Segment, y.Cols)), Eps: o.Eps, Offset: o.Offset, Scale: scaleOf(o), XBF16: c.bf16(o.X),
	}
	if o.Gated {
		a.Gate = c.value(o.Gate)
	}
	if o.Plain {
		a.Plain, a.Offset, a.Bias = 1, 0, c.weight(o.Bias)
	}
	if c.wholeRows(o) {
		return add(c, "norm_rows", line(each(y.Rows, 1, 1)), cuda.RowThreads(y.Cols, c.v.rows), 0, a)
	}
	return add(c, "norm", line(each(y.Rows, y.Cols/int(a.Segment), 1)), across(int(a.Segment), 1024), 0, a)
}

func scaleOf(o backend.Norm) float32 { return cmp.Or(o.Scale, 1) }

// element appends an op on every number of x.
func (c *lowering) element(kernel string, x backend.Value, a cuda.ElementsArgs) error {
	a.X = c.value(x)
	return elements(c, kernel, x, a, unsafe.Offsetof(a.N))
}

// elements launches a thread for each number of x. The 64-bit count is at offset n of the
// arguments; the launch sets its lower half.
func elements[T any](c *lowering, kernel string, x backend.Value, a T, n uintptr) error {
	in := c.info(x)
	const threads = 256
	return add(c, kernel, line(each(in.Rows, in.Cols, threads)), threads, 0, a, bind(n, in.Rows, in.Cols))
}

// concat concatenates rows of a and b, or copies those of a.
func (c *lowering) concat(a cuda.Ptr, of backend.ValueInfo, b cuda.Ptr, and backend.ValueInfo, y cuda.Ptr) error {
	args := cuda.ConcatArgs{A: a, B: b, Y: y, NA: int32(of.Cols), NB: int32(and.Cols)}
	return add(c, "concat", line(each(of.Rows, 1, 1)), across(of.Cols+and.Cols, 256), 0, args)
}

func (c *lowering) gather(op backend.Op, x, to backend.Value, rows cuda.Ptr, last bool) error {
	y := c.info(to)
	if y.Format.Bytes(1) != 4 {
		return missing(op, "of "+y.Format.String())
	}
	a := cuda.GatherArgs{X: c.value(x), Y: c.value(to), Rows: rows, Cols: int32(y.Cols), Last: flag(last)}
	return add(c, "gather", line(each(y.Rows, 1, 1)), across(y.Cols, 256), 0, a)
}

func (c *lowering) route(o backend.Route) error {
	l := c.info(o.Logits)
	const most, warps = 1024, 8
	if l.Cols > most {
		return missing(o, "among more than 1024 experts")
	}
	a := cuda.RouteArgs{
		Logits: c.value(o.Logits), Scale: c.weight(o.Scale), IDs: c.value(o.Ids), Weights: c.value(o.Weights), Experts: int32(l.Cols), Top: int32(o.Top),
		Score: int32(o.Score), Normalize: flag(o.Normalize), Groups: int32(o.Groups), TopGroups: int32(o.TopGroups), GroupTop: int32(cmp.Or(o.GroupTop, 2)), Factor: cmp.Or(o.Factor, 1),
	}
	if o.Corrected {
		a.Correction = c.weight(o.Correction)
	}
	if at, e, ok := c.orderedFor(o); ok {
		c.ordered = at
		return c.routeOrder(a, l.Rows, e)
	}
	return add(c, "route", line(each(l.Rows, 1, warps)), 32*warps, 0, a, bind(unsafe.Offsetof(a.Rows), l.Rows, 1))
}

func (c *lowering) sample(o backend.Sample) error {
	s, m := c.at.step, c.sampling()
	a := cuda.SampleArgs{
		Logits: c.value(o.Logits), Rows: s.sampling, Grammar: s.grammar, Allowed: s.allowed, Bias: s.bias, Raw: c.workspace(m.raw), Workspace: c.workspace(m.shared), Slices: int32(m.slices),
		Sampled: s.sampled, Status: s.status, Rank: s.rank, Logprob: s.logprob, TopIDs: s.topIDs, TopProbs: s.topProbs, Reported: s.reported,
		Pages: c.pages(o.Class, 0), Plane: c.p.Classes[o.Class].TokenOffset(),
		Vocab: int32(c.p.Vocab), Words: int32(c.at.shape.MaskWords()), BiasWidth: int32(c.at.shape.Bias), TopWidth: int32(c.at.shape.Logprobs),
		Finished: c.workspace(0),
	}
	threads := lanes(ceil(c.p.Vocab, 4*m.slices), 1024)
	for i, k := range []struct {
		kernel          string
		threads, shared int
	}{
		{"sample_edit", threads, cuda.SampleShared}, {"sample_weigh", threads, 0},
		{"sample_draw", min(threads, cuda.SampleDrawThreads), cuda.SampleDrawShared}, {"sample_report", threads, 0},
	} {
		if err := add(c, k.kernel, grid{fixed(m.slices), each(backend.PerSample, 1, 1), fixed(1)}, k.threads, k.shared, a); err != nil {
			return err
		}
		c.out[len(c.out)-1].draws = i > 0
	}
	return nil
}

// draft appends the ops that verify and make proposals.
func (c *lowering) draft(op backend.Op) error {
	s := c.at.step
	a := cuda.DraftArgs{First: s.first, Rows: s.rows, Sampled: s.sampled, Index: c.workspace(counters)}
	kernel := "verify"
	switch o := op.(type) {
	case backend.Propose:
		z := c.info(o.Logits)
		a := cuda.ProposeArgs{Logits: c.value(o.Logits), IDs: c.value(o.Ids), Drafts: s.drafts, Vocab: int32(z.Cols), N: int32(o.N), Of: int32(o.Of)}
		return add(c, "propose", line(each(z.Rows, 1, 1)), lanes(z.Cols/8, 1024), 0, a)
	case backend.DraftInput:
		kernel, a.IDs, a.Out = "drafted", c.value(o.Ids), c.value(o.Out)
	case backend.Verify:
		a.IDs, a.Out, a.Accepted = c.value(o.Ids), c.value(o.AcceptedRow), s.accepted
	}
	return add(c, kernel, line(fixed(1)), lanes(c.rows(backend.PerToken), 1024), 0, a,
		bind(unsafe.Offsetof(a.Tokens), backend.PerToken, 1), bind(unsafe.Offsetof(a.Seqs), backend.PerSeq, 1), bind(unsafe.Offsetof(a.Samples), backend.PerSample, 1))
}
