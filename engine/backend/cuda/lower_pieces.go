package cuda

import (
	"slices"
	"unsafe"

	"vapp.dev/engine/backend"
	"vapp.dev/kernels"
	"vapp.dev/kernels/cuda"
)

const (
	// partialBytes is the most that the partial results of one attention op may take in the workspace.
	partialBytes = 64 << 20
	// joinedBytes is the most that one block reads to join the splits of a sequence that decodes.
	joinedBytes = 256 << 10
	// longSplit is the number of positions from which a split of many sequences is worth a block of its own.
	longSplit = 512
)

// listed reports whether an op's launches take their work from lists. The positions of draft rows are known to the device
// alone; bidirectional rows have no history; attention_f32 and latent attention divide all histories into equal numbers of
// parts.
func listed(o backend.Attention, f kernels.Format) bool {
	return o.Draft == nil && !o.Bidirectional && o.Latent == 0 && f != kernels.F32
}

// addLists plans the launches of an op. Lists for few rows and for decoding have one launch of blocks of 16 rows. Steps of
// others have two: sequences with at most as many tokens as decoding gives them are taken by blocks of 16 rows, whose
// histories are split, and prompts by blocks of 64.
func (c *lowering) addLists(a *attend, o backend.Attention, f kernels.Format) {
	tokens, seqs := c.rows(c.info(o.Y).Rows), c.rows(backend.PerSeq)
	decode, ok := cuda.ChooseAttention(f, o.HeadDim, false, c.l.shared())
	if !ok { // a.Attention is what there is
		decode = a.Attention
	}
	few := attendList{Attention: decode, AttentionPieces: cuda.AttentionPieces{
		Rows: decode.Rows, Group: o.Heads / o.KVHeads, From: 1, To: tokens, Least: cuda.AttentionKeys, Most: 1, Window: o.Window, Chunked: o.Chunked,
	}}
	if !c.v.few() {
		few.To = min(tokens, c.decoded())
	}
	n := few.Tokens(tokens, seqs)
	few.Least = min(longSplit, max(1, n/4)*cuda.AttentionKeys)
	few.Most = c.mostSplits(few, o, n)
	each := o.KVHeads * few.Parts
	few.blocks = fixed(max(1, min(few.Count(tokens, seqs), ceil(blocksPerSM*c.l.sms, each))))
	a.lists = []attendList{few}
	if few.Most > 1 {
		values, stats := cuda.PartialBytes(o.Heads, o.HeadDim)
		parts := int64(n) * int64(few.Most)
		a.stats = a.part + up(values*parts, align)
		a.end = a.stats + up(stats*parts, align)
	}
	if few.To >= tokens {
		return
	}
	many := attendList{Attention: a.Attention, AttentionPieces: few.AttentionPieces}
	many.AttentionPieces.Rows, many.From, many.To, many.Most = many.Attention.Rows, few.To+1, tokens, 1
	many.blocks = c.promptBlocks(o, many.Attention.Rows)
	a.lists = append(a.lists, many)
}

// blocksPerSM is how many blocks of attention a multiprocessor gets.
const blocksPerSM = 4

// promptBlocks returns a block for each piece of prompts.
func (c *lowering) promptBlocks(o backend.Attention, rows int) dimension {
	d := each(c.info(o.Y).Rows, o.Heads/o.KVHeads, rows)
	d.add = c.rows(backend.PerSeq)
	return d
}

// decoded returns the tokens that decoding gives a sequence: one, and the proposals that a step verifies.
func (c *lowering) decoded() int {
	for _, op := range c.p.Ops {
		if _, ok := op.(backend.Verify); ok { // all of them are sampled
			return max(1, ceil(c.p.Bucket.Samples, c.p.Bucket.Seqs))
		}
	}
	return 1
}

// mostSplits returns the most splits of a list of n tokens.
func (c *lowering) mostSplits(l attendList, o backend.Attention, n int) int {
	k := c.p.Classes[o.Class]
	most := k.MaxPages * k.BlockSize
	if o.Window > 0 {
		most = min(most, o.Window)
	}
	values, stats := cuda.PartialBytes(o.Heads, o.HeadDim)
	rows := min(l.AttentionPieces.Rows, c.decoded()*l.Group) // of a block in decoding
	splits := min(maxSplits, ceil(most, l.Least), ceil(blocksPerSM*c.l.sms, o.KVHeads*l.Parts),
		int(partialBytes/(int64(n)*(values+stats))), joinedBytes/(4*rows*o.HeadDim))
	if 4*l.Counters(n, o.KVHeads) > attentionCounters {
		splits = 1
	}
	return max(1, splits)
}

// attendByLists appends the launches of an op.
func (c *lowering) attendByLists(o backend.Attention, a attend, args cuda.AttentionArgs) error {
	args.Splits, args.Seqs = 1, int32(c.rows(backend.PerSeq))
	for _, l := range a.lists {
		args.List, args.Most = c.at.step.work+cuda.Ptr(4*c.workList(l.AttentionPieces, c.rows(c.info(o.Y).Rows))), int32(l.Most)
		args.Arrived, args.Partial, args.Stats = 0, 0, 0
		if l.Most > 1 {
			args.Arrived, args.Partial, args.Stats = c.workspace(productCounters), c.workspace(a.part), c.workspace(a.stats)
		}
		if err := add(c, l.Kernel, grid{l.blocks, fixed(o.KVHeads * l.Parts), fixed(1)}, l.Threads, l.Shared, args, bind(unsafe.Offsetof(args.Seqs), backend.PerSeq, 1)); err != nil {
			return err
		}
		c.out[len(c.out)-1].pieces = l.AttentionPieces
	}
	return nil
}

// workList is a list of pieces in Step.Work: Most numbers from At.
type workList struct {
	cuda.AttentionPieces
	at, most int
}

// workList returns where the list of p is in Step.Work. Ops with equal pieces share it.
func (c *lowering) workList(p cuda.AttentionPieces, tokens int) int {
	i := slices.IndexFunc(c.work, func(l workList) bool { return l.AttentionPieces == p })
	if i >= 0 {
		return c.work[i].at
	}
	at := 0
	if n := len(c.work); n > 0 {
		at = c.work[n-1].at + c.work[n-1].most
	}
	c.work = append(c.work, workList{p, at, int(p.Bytes(tokens, c.rows(backend.PerSeq)) / 4)})
	return at
}

// workLists returns the lists of the variant's steps.
func (c *lowering) workLists() ([]workList, error) {
	for _, op := range c.p.Ops {
		o, ok := op.(backend.Attention)
		if !ok {
			continue
		}
		a, err := c.attention(o)
		if err != nil {
			return nil, err
		}
		for _, l := range a.lists {
			c.workList(l.AttentionPieces, c.rows(c.info(o.Y).Rows))
		}
	}
	return c.work, nil
}

var _ backend.WorkLister = layout{}

// WorkLists implements backend.WorkLister: the largest lists of a variant.
func (l layout) WorkLists(p *backend.Program) (int, error) {
	if err := p.Check(); err != nil {
		return 0, err
	}
	most := 0
	for _, v := range variants(p.Bucket) {
		c := lowering{l: l, p: p, v: v}
		lists, err := c.workLists()
		if err != nil {
			return 0, err
		}
		if n := len(lists); n > 0 {
			most = max(most, lists[n-1].at+lists[n-1].most)
		}
	}
	return most, nil
}
