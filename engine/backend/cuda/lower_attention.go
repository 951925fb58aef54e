package cuda

import (
	"cmp"
	"fmt"
	"unsafe"

	"vapp.dev/engine/backend"
	"vapp.dev/kernels"
	"vapp.dev/kernels/cuda"
)

const (
	// maxHeadDim is the widest head that attention can keep in registers and shared memory. Keys
	// of latent attention have more dimensions.
	maxHeadDim = 512
	// maxSplits is the most blocks that share the history of a row.
	maxSplits = cuda.MostSplits
	// maxKeyDim and maxConvKernel are the most that delta and conv can keep in registers.
	maxKeyDim, maxConvKernel = 128, 8
)

// pages returns the kernel arguments for a layer of a class.
func (c *lowering) pages(class, layer int) cuda.Pages {
	k := c.p.Classes[class]
	return cuda.Pages{
		Arena: c.at.arenas[backend.KV], Tables: c.at.step.pages[class],
		PageBytes: k.PageBytes(), SlabBytes: k.SlabBytes, K: k.KOffset(layer), V: k.VOffset(layer),
		PerSlab: int32(k.PagesPerSlab), Width: int32(k.MaxPages), Block: int32(max(1, k.BlockSize)),
		KVHeads: int32(k.KVHeads), HeadDim: int32(k.HeadDim), KeyDim: int32(cmp.Or(k.KeyDim, k.HeadDim)), Window: int32(k.Window), Chunked: flag(k.Chunked),
	}
}

// attend is the plan of one attention op: its kernel, and how the keys of a row are shared by blocks. With lists these are
// the launches of the op, for its sequences of few tokens and of many; else histories are split into a number of parts.
type attend struct {
	cuda.Attention
	ok              bool
	splits          int
	first, at, part int64 // workspace offsets: First and Positions of draft rows; partial results
	end             int64
	lists           []attendList
	stats           int64 // workspace offset of what joins the partial results of lists
}

// attendList is a launch of attention by a list of pieces.
type attendList struct {
	cuda.Attention
	cuda.AttentionPieces
	blocks dimension
}

// attention plans an op for the variant's rows. It fails for heads that no kernel will
// support.
func (c *lowering) attention(o backend.Attention) (a attend, err error) {
	if o.HeadDim > maxHeadDim {
		return a, backend.Unsupported(name, fmt.Sprintf("attention heads of %d", o.HeadDim), fmt.Sprintf("at most %d", maxHeadDim))
	}
	f := c.info(o.K).Format
	if o.Latent > 0 {
		const most = 32 // heads of a token that leave blocks of 16 rows
		a.Attention, a.ok = cuda.ChooseLatent(f, o.HeadDim, o.Latent, !c.v.few() || o.Heads > most, c.l.shared())
	} else {
		many := !c.v.few() || o.Bidirectional
		a.Attention, a.ok = cuda.ChooseAttention(f, o.HeadDim, many, c.l.shared())
		if !a.ok && many {
			a.Attention, a.ok = cuda.ChooseAttention(f, o.HeadDim, false, c.l.shared())
		}
		if w, ok := cuda.ChooseAttentionWide(f, o.HeadDim); ok && many && c.wideAttention(o, w) {
			a.Attention, a.ok = w, true
		}
	}
	rows := c.rows(c.info(o.Y).Rows)
	a.splits = 1
	a.first, a.part = counters, counters
	if o.Draft != nil {
		a.at = a.first + up(4*int64(rows+1), align)
		a.part = a.at + up(4*int64(rows), align)
	}
	a.end = a.part
	if a.ok && listed(o, f) {
		c.addLists(&a, o, f)
		return a, nil
	}
	a.splits = c.splits(a, rows, o)
	if a.splits > 1 {
		a.end += up(4*int64(rows)*int64(o.Heads)*int64(a.splits)*int64(o.HeadDim+2), align)
	}
	return a, nil
}

// wideAttention reports whether the warpgroups of sm_90a compute the prompts of an op, by the kernel w: from as many tokens on as two of its
// blocks have rows for; fewer keep more multiprocessors busy in blocks of 64. A scale below zero would make the largest product
// the smallest score.
func (c *lowering) wideAttention(o backend.Attention, w cuda.Attention) bool {
	rows := c.rows(c.info(o.Y).Rows) * (o.Heads / o.KVHeads)
	return c.l.arch() == "sm_90a" && o.Rebuild == nil && o.Draft == nil && o.Scale > 0 && rows >= 2*w.Rows
}

// splits returns how many blocks share the history of a row, if there are too few rows to
// occupy all multiprocessors. It depends on the variant, not on the step; with a shorter
// sequence, the last blocks have no work.
func (c *lowering) splits(a attend, rows int, o backend.Attention) int {
	if o.Bidirectional || !c.v.few() || rows == 0 {
		return 1
	}
	k := c.p.Classes[o.Class]
	most := k.MaxPages * k.BlockSize
	if o.Window > 0 {
		most = min(most, o.Window)
	}
	blocks := 4 // per multiprocessor
	each := o.KVHeads * max(1, a.Parts)
	if o.Latent > 0 { // a block has most of the shared memory, and partial results are wide
		blocks, each = 2, ceil(o.Heads, max(1, a.Rows))
	}
	return max(1, min(maxSplits, ceil(most, cuda.AttentionKeys), blocks*c.l.sms/(rows*each)))
}

// shared returns how much shared memory a block may use, in bytes.
func (l layout) shared() int {
	switch l.cc {
	case 80, 87:
		return 163 << 10
	case 90, 100, 101, 103:
		return 227 << 10
	}
	return 99 << 10 // 8.6, 8.9, 12.0
}

// attend appends attention and, if histories are split, the kernel that joins the parts.
func (c *lowering) attend(o backend.Attention) error {
	a, err := c.attention(o)
	switch {
	case err != nil:
		return err
	case !a.ok && o.Latent > 0:
		return missing(o, fmt.Sprintf("with latent keys of %d+%d as %v on %s", o.HeadDim, o.Latent, c.info(o.K).Format, c.l.arch()))
	case !a.ok:
		return missing(o, fmt.Sprintf("of heads of %d with keys and values as %v on %s", o.HeadDim, c.info(o.K).Format, c.l.arch()))
	}
	args := cuda.AttentionArgs{
		Q: c.value(o.Q), K: c.value(o.K), V: c.value(o.V), Y: c.value(o.Y), First: c.at.step.first, Positions: c.at.step.positions,
		Partial: c.workspace(a.part), Scale: o.Scale, Softcap: o.Softcap, Heads: int32(o.Heads), Window: int32(o.Window), Bidirectional: flag(o.Bidirectional),
		Splits: int32(a.splits), Latent: int32(o.Latent), Most: 1, QStored: c.stored16(o.Q),
	}
	if o.Bidirectional {
		args.Pages = cuda.Pages{Block: 1, PerSlab: 1, KVHeads: int32(o.KVHeads), HeadDim: int32(o.HeadDim), KeyDim: int32(o.HeadDim)}
	} else {
		args.Pages = c.pages(o.Class, o.Layer)
	}
	if o.Items {
		args.Items = c.at.step.itemEnd
	}
	if o.Sinked {
		args.Sinks = c.weight(o.Sinks)
	}
	if r := o.Rebuild; r != nil {
		if key := int(args.Pages.KeyDim); key/2%8 != 0 || o.HeadDim/2%8 != 0 {
			return backend.Unsupported(name, fmt.Sprintf("keys of %d rebuilt to %d", key, o.HeadDim), "halves of keys are fetched 8 numbers at a time; leave memory.kvRebuild out")
		}
		args.Rebuild = c.weight(r.Weight)
	}
	if o.Draft != nil {
		if err := c.draftPositions(o, a, &args); err != nil {
			return err
		}
	}
	joins := a.splits > 1
	packs, packed := c.packsOutput(o, joins)
	if packed = packed && (joins || o.Latent == 0 && c.info(o.K).Format != kernels.F32); packed {
		c.packOutput(o, packs, &args)
	}
	if a.lists != nil {
		return c.attendByLists(o, a, args)
	}
	tokens := c.info(o.Y).Rows
	g := grid{c.attentionBlocks(a, o, tokens), fixed(o.KVHeads * a.Parts), fixed(a.splits)}
	fields := []field{bind(unsafe.Offsetof(args.Seqs), backend.PerSeq, 1)}
	if err := add(c, a.Kernel, g, a.Threads, a.Shared, args, fields...); err != nil || a.splits == 1 {
		return err
	}
	join := cuda.JoinArgs{Attention: args}
	if packed {
		join.Gate = c.value(packs.gate)
		c.joined = packs.linear
	}
	if err := add(c, "attention_join", grid{each(tokens, 1, 1), fixed(o.Heads), fixed(1)}, across(o.HeadDim, 256), 0, join, fields...); err != nil || !packed || packs.store == nil {
		return err
	}
	c.stored = c.storingOf(*packs.store)
	return c.storeBeside(unsafe.Offsetof(join.Beside), 1)
}

// attentionBlocks returns enough blocks for the rows of every step of the variant. Each
// sequence begins a new block.
func (c *lowering) attentionBlocks(a attend, o backend.Attention, tokens backend.Rows) dimension {
	group := o.Heads / o.KVHeads
	if c.v.few() {
		return each(tokens, group+a.Rows, a.Rows)
	}
	d := each(tokens, group, a.Rows)
	d.add = c.rows(backend.PerSeq)
	return d
}

// draftPositions appends a kernel that computes First and Positions of draft rows, in the
// form that attention takes for tokens.
func (c *lowering) draftPositions(o backend.Attention, a attend, args *cuda.AttentionArgs) error {
	args.First, args.Positions = c.workspace(a.first), c.workspace(a.at)
	to := cuda.AheadArgs{
		AcceptedRow: c.value(o.Draft.AcceptedRow), Positions: c.at.step.positions, Tables: args.Pages.Tables, First: args.First, At: args.Positions,
		Width: args.Pages.Width, Block: args.Pages.Block, By: int32(o.Draft.By),
	}
	const warps = 8
	return add(c, "ahead", line(each(backend.PerSeq, 1, warps)), 32*warps, 0, to, bind(unsafe.Offsetof(to.Seqs), backend.PerSeq, 1))
}

// missing returns the error for an op without a kernel.
func missing(op backend.Op, what string) error {
	return backend.Unsupported(name, backend.OpName(op)+" "+what, "no kernel does it")
}

// angles, rope and storeKV append the ops around attention.
func (c *lowering) angles(o backend.Angles) error {
	y := c.info(o.Y)
	a := cuda.AnglesArgs{
		Positions: c.at.step.positions, Frequencies: c.weight(o.InvFreq), Y: c.value(o.Y), Half: int32(y.Cols / 2), Scale: o.Scale, Joined: flag(o.Joined),
		Every: int32(o.Temperature.Every), Offset: int32(o.Temperature.Offset), Beta: o.Temperature.Beta,
	}
	if o.Grid {
		a.Across, a.Down, a.Half = c.value(o.Across), c.value(o.Down), int32(y.Cols/4)
	}
	if o.Sections != [3]int{} {
		a.Places = c.at.step.places
		a.Sections = [3]int32{int32(o.Sections[0]), int32(o.Sections[1]), int32(o.Sections[2])}
	}
	if o.Draft != nil {
		a.AcceptedRow, a.By = c.value(o.Draft.AcceptedRow), int32(o.Draft.By)
	}
	return add(c, "angles", line(each(y.Rows, 1, 1)), lanes(y.Cols/2, 256), 0, a)
}

func (c *lowering) rope(o backend.Rope) error {
	x := c.info(o.QKV)
	a := cuda.RopeArgs{
		QKV: c.value(o.QKV), Q: c.value(o.Q), K: c.value(o.K), V: c.value(o.V),
		Heads: int32(o.Heads), KVHeads: int32(o.KVHeads), HeadDim: int32(o.HeadDim), Rotary: int32(o.Rotary), Shared: flag(o.Shared), Parts: 1, Interleaved: flag(o.Interleaved),
		XBF16: c.bf16(o.QKV), QStored: c.stored16(o.Q),
	}
	if o.Grid {
		a.Parts = 2
	}
	if o.Rotary > 0 {
		a.Angles = c.value(o.Angles)
	}
	if o.Tempered {
		a.QueryAngles = c.value(o.QueryAngles)
	}
	if o.Gated {
		a.Gate = c.value(o.Gate)
	}
	if n := o.Norm; n != nil {
		a.WQ, a.WK, a.Eps, a.Offset = c.weight(n.Q), c.weight(n.K), n.Eps, n.Offset
		a.Norm = cuda.NormQK | flag(n.V)*cuda.NormV | flag(n.Whole)*cuda.NormWhole | flag(n.Whole || n.Each)*cuda.NormEach | flag(n.Plain)*cuda.NormPlain | flag(n.After)*cuda.NormAfter
		if n.Plain {
			a.Offset = 0
		}
	}
	stored := c.info(o.Q).Format
	if o.KVHeads > 0 {
		stored = c.info(o.K).Format
	}
	return add(c, "rope_"+cuda.StoredName(stored), line(each(x.Rows, 1, 1)), 32*min(8, o.Heads+2*o.KVHeads), 0, a)
}

func (c *lowering) storeKV(o backend.StoreKV) error {
	s := c.storingOf(o)
	if s.waits = c.left.inPlace && c.left.op > c.now; s.waits || c.storesLater(c.info(o.K).Rows) {
		c.stored = s
		return nil
	}
	return c.launchStore(s)
}

// launchStore appends a launch of its own for a store.
func (c *lowering) launchStore(s *storing) error {
	const block, threads = 16, 128
	rows := c.info(s.op.K).Rows
	g := grid{each(rows, 1, block), fixed(int(s.args.Pages.KVHeads)), fixed(1)}
	return add(c, fmt.Sprintf("store_kv_%d", 8*s.bytes), g, threads, s.shared, s.args, bind(unsafe.Offsetof(s.args.Rows), rows, 1))
}

// storingOf returns the arguments of a store.
func (c *lowering) storingOf(o backend.StoreKV) *storing {
	k, wide := c.p.Classes[o.Class], c.info(o.K).Cols
	a := cuda.StoreArgs{
		Pages: c.pages(o.Class, o.Layer), K: c.value(o.K), V: c.value(o.V),
		Positions: c.at.step.positions, Seq: c.at.step.seq, First: c.at.step.first, Latent: flag(k.KeyDim > 0 && wide == k.KVHeads*k.KeyDim),
	}
	if o.Draft != nil {
		a.AcceptedRow, a.By = c.value(o.Draft.AcceptedRow), int32(o.Draft.By)
	}
	bytes := int(k.Format.Bytes(1))
	return &storing{op: o, args: a, bytes: bytes, shared: cuda.StoreShared(wide/k.KVHeads, bytes)}
}

func (c *lowering) storeTokens(o backend.StoreTokens) error {
	a := cuda.StoreArgs{
		Pages: c.pages(o.Class, 0), IDs: c.value(o.Ids), Plane: c.p.Classes[o.Class].TokenOffset(),
		Positions: c.at.step.positions, Seq: c.at.step.seq, First: c.at.step.first,
	}
	const threads = 256
	return add(c, "store_tokens", line(each(backend.PerToken, 1, threads)), threads, 0, a, bind(unsafe.Offsetof(a.Rows), backend.PerToken, 1))
}

// states returns the kernel arguments for a layer of a class of states and its snapshots.
func (c *lowering) states(class, layer int) cuda.States {
	k := c.p.Classes[class]
	s := cuda.States{
		Pages: c.pages(class, layer), Rows: int32(k.State.ConvRows), Cols: int32(k.State.ConvCols), Copies: int32(k.State.Copies),
		MatrixBytes: k.State.MatrixBytes(), InputBytes: k.State.ConvBytes(), MarkPerSlab: 1,
	}
	if i := c.p.Snapshots(class); i >= 0 {
		m := c.p.Classes[i]
		s.Marks, s.MarkPageBytes, s.MarkSlabBytes = c.at.step.pages[i], m.PageBytes(), m.SlabBytes
		s.MarkK, s.MarkPerSlab = m.KOffset(layer), int32(m.PagesPerSlab)
	}
	return s
}

func (c *lowering) conv(o backend.Conv) error {
	if o.Biased {
		return backend.Unsupported(name, "op "+backend.RequiredFeature(o), "Mamba-2 layers are planned only; backend ref runs them")
	}
	if o.Kernel > maxConvKernel {
		return backend.Unsupported(name, fmt.Sprintf("a convolution of %d rows", o.Kernel), fmt.Sprintf("at most %d", maxConvKernel))
	}
	k, x := c.p.Classes[o.Class], c.info(o.X)
	a := cuda.ConvArgs{
		States: c.states(o.Class, o.Layer), X: c.value(o.X), W: c.weight(o.W), Y: c.value(o.Y),
		First: c.at.step.first, Positions: c.at.step.positions, Kernel: int32(o.Kernel),
	}
	threads := lanes(x.Cols, 256)
	g := grid{fixed(ceil(x.Cols, threads)), each(backend.PerSeq, 1, 1), fixed(min(64, ceil(c.rows(x.Rows), cuda.ConvRun)))}
	return add(c, "conv_"+k.State.ConvFormat.String(), g, threads, 0, a)
}

func (c *lowering) deltaNet(o backend.DeltaNet) error {
	if o.KeyDim > maxKeyDim {
		return backend.Unsupported(name, fmt.Sprintf("keys of %d", o.KeyDim), fmt.Sprintf("at most %d", maxKeyDim))
	}
	a := cuda.DeltaArgs{
		States: c.states(o.Class, o.Layer), QKV: c.value(o.QKV), BA: c.value(o.BA), ALog: c.weight(o.ALog), Bias: c.weight(o.DtBias), Y: c.value(o.Y),
		First: c.at.step.first, Positions: c.at.step.positions, Samples: c.at.step.rows,
		KeyHeads: int32(o.KeyHeads), ValueHeads: int32(o.ValueHeads), KeyDim: int32(o.KeyDim), ValueDim: int32(o.ValueDim),
	}
	step := cuda.ChooseDelta(o.KeyDim, o.ValueDim, a.States.InputBytes%16 == 0 && a.States.Pages.K%16 == 0 && a.States.MarkK%16 == 0)
	g := grid{fixed(ceil(o.ValueDim, cuda.DeltaColumns)), fixed(o.ValueHeads), each(backend.PerSeq, 1, 1)}
	samples := bind(unsafe.Offsetof(a.SampleCount), backend.PerSample, 1)
	seqs := bind(unsafe.Offsetof(a.Seqs), backend.PerSeq, 1)
	const threads = 128
	if c.v.few() {
		return add(c, step, g, threads, 0, a, samples, seqs)
	}
	a.Least, a.Work = cuda.DeltaLeast, c.workspace(counters)
	if err := add(c, step, g, threads, 0, a, samples, seqs); err != nil {
		return err
	}
	chunks := each(backend.PerToken, 1, 64)
	chunks.add = 2 * c.rows(backend.PerSeq)
	if err := add(c, "delta_chunks", grid{chunks, fixed(o.KeyHeads), fixed(1)}, threads, cuda.DeltaChunksShared, a, samples, seqs); err != nil {
		return err
	}
	return add(c, "delta_prompt", g, threads, cuda.DeltaPromptShared, a, samples, seqs)
}
