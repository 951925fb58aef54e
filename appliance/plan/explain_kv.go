package plan

import (
	"fmt"
	"strings"

	"vapp.dev/engine/kv"
)

func (p *Plan) explainKV(e *Explanation) {
	c := p.Capacity
	e.Value, e.Source = bytesOf(p.Ledger.Bytes("kv"))+", exact", fromPool
	if p.stages() > 1 {
		e.step("slabs of %s: of each class as many pages as a slab of all stages has, %s, so that a page has one number on all ranks", bytesOf(c.SlabBytes), bytesOf(p.Account.Pool.SlabBytes))
	} else {
		e.step("slabs of %s, chosen by the model and the profile alone: the smallest that leaves next to nothing at the ends of slabs", bytesOf(c.SlabBytes))
	}
	if p.Budget.Bytes > 0 {
		rest := p.Ledger.Total() - p.Ledger.Bytes("kv")
		e.step("budget %s − everything else %s = %s for KV", Group(p.Budget.Bytes), Group(rest), bytesOf(p.Budget.Bytes-rest))
	}
	e.step("%s slabs × %s B = %s", Group(int64(c.Slabs)), Group(c.SlabBytes), bytesOf(int64(c.Slabs)*c.SlabBytes))
	for _, cl := range c.Classes {
		e.step("%v", cl)
	}
	e.step("a slab belongs to one class at a time, so that no class has a fixed share")
}

// explainClass explains the size of a class's page, and how many pages a sequence has.
func (p *Plan) explainClass(e *Explanation, name string) {
	e.Source = fromPool
	for i, cl := range p.Capacity.Classes {
		if cl.Name != name {
			continue
		}
		k := p.Account.Reservation.Classes[i]
		e.Value = fmt.Sprintf("pages of %s, %d a slab", bytesOf(cl.PageBytes), cl.PagesPerSlab)
		if s := k.State; s != nil {
			e.step("convolution: %d inputs × %s channels %v = %s a layer", s.ConvRows, Group(int64(s.ConvCols)), s.ConvFormat, bytesOf(s.ConvBytes()))
			e.step("matrices: %s × %d heads × %d × %d × 4 B = %s a layer", copies(s.Copies), s.Heads, s.Rows, s.Cols, bytesOf(int64(s.Copies)*s.MatrixBytes()))
			e.step("× %s = %s", numberOf(k.Layers, "layer"), bytesOf(int64(k.Layers)*s.Bytes()))
			if k.Snapshot {
				p.explainCheckpoints(e, cl)
				return
			}
			e.step("one page a sequence, whatever its length")
			return
		}
		key := k.HeadDim
		if k.KeyDim > 0 {
			key = k.KeyDim
		}
		e.step("a token: %s × %s × (%d of K + %d of V) %v = %s", numberOf(k.Layers, "layer"), numberOf(k.KVHeads, "head"), key, k.HeadDim, k.Format, bytesOf(cl.BytesPerToken))
		plane := ""
		if k.Plane {
			plane = fmt.Sprintf(" + %d token ids × 4 B", k.BlockSize)
		}
		e.step("a page: %d tokens × %s B%s, up to 64 B = %s", k.BlockSize, Group(cl.BytesPerToken), plane, bytesOf(cl.PageBytes))
		e.step("a sequence of %s tokens: %s", Group(int64(p.Options.MaxModelLen)), pagesRule(p.Account.KV, i, p.Options.MaxModelLen))
	}
}

// explainCheckpoints explains how many state snapshots are kept for prefixes.
func (p *Plan) explainCheckpoints(e *Explanation, cl Class) {
	e.step("prompts with a common prefix begin from one; they are stored at the last whole block of each prompt, where two prompts diverge, and every %s tokens", Group(int64(cl.CheckpointEvery)))
	e.step("%s tokens: as many as take the bytes of a checkpoint in the classes that keep every token, at least 16 blocks", Group(int64(cl.CheckpointEvery)))
	e.step("at most ⌊%s slabs / 4⌋ × %d a slab = %s (at least one slab's); the least recently used are evicted first", Group(int64(p.Capacity.Slabs)), cl.PagesPerSlab, Group(int64(cl.Checkpoints)))
	e.step("they use pages that sequences leave free and are evicted for sequences, so that no capacity counts them")
}

func copies(n int) string {
	if n == 1 {
		return "1 copy"
	}
	return fmt.Sprintf("%d copies (one for each token that a step may verify)", n)
}

// pagesRule returns the formula of kv.Layout.SequencePages with its numbers.
func pagesRule(l kv.Layout, class, tokens int) string {
	s, n := l.Specs[class], Group(int64(l.SequencePages(class, tokens)))
	switch s.Kind {
	case kv.State:
		return "1 page"
	case kv.Chunk:
		return fmt.Sprintf("min(⌈%s / %d⌉, the blocks of a chunk of %s tokens) = %s pages: those of earlier chunks are released", Group(int64(tokens)), s.BlockSize, Group(int64(s.Window)), n)
	case kv.Window:
		if s.Ahead > 0 {
			return fmt.Sprintf("min(⌈%s / %d⌉, ⌈(%d − 2 + %d) / %d⌉ + 1) = %s pages: a window may begin inside of one, and does not move past tokens that a step may take back",
				Group(int64(tokens)), s.BlockSize, s.Window, s.Ahead, s.BlockSize, n)
		}
		return fmt.Sprintf("min(⌈%s / %d⌉, ⌈(%d − 2) / %d⌉ + 1) = %s pages: a window may begin inside of one", Group(int64(tokens)), s.BlockSize, s.Window, s.BlockSize, n)
	}
	return fmt.Sprintf("⌈%s / %d⌉ = %s pages", Group(int64(tokens)), s.BlockSize, n)
}

func (p *Plan) explainConcurrency(e *Explanation) {
	c, n := p.Capacity, p.Options.MaxModelLen
	e.Value, e.Source = fmt.Sprintf("%.2fx at %s tokens, %s tokens", c.Concurrency, Group(int64(n)), Group(c.Tokens)), fromPool
	var sum []string
	pool := p.Account.Pool
	for i, s := range pool.Specs {
		if s.Kind == kv.Snapshot {
			continue
		}
		e.step("%s: %s", s.Name, pagesRule(pool, i, n))
		sum = append(sum, fmt.Sprintf("%s / %d", Group(int64(pool.SequencePages(i, n))), pool.PagesPerSlab[i]))
	}
	e.step("one sequence: %s = %.4f slabs, each page for its share of a slab", strings.Join(sum, " + "), pool.Share(n))
	e.step("%s slabs / %.4f = %.4f", Group(int64(c.Slabs)), pool.Share(n), c.Concurrency)
	e.step("exact pools (no pages, no slabs, windows of their very length): %s B a sequence, %.4f", Group(int64(ideal(p.Account.Whole, n))), c.Ideal)
	if p.hybrid() {
		e.step("tokens: concurrency × %s = %s; pages of %s alone would be %s, which is no capacity: windows and states take slabs too", Group(int64(n)), Group(c.Tokens), pool.Specs[0].Name, Group(c.GrowingTokens))
	} else {
		e.step("tokens: %s pages × %d = %s", Group(int64(pool.Pages(0, c.Slabs))), pool.Specs[0].BlockSize, Group(c.Tokens))
	}
}

func (p *Plan) explainAdmitted(e *Explanation) {
	f := p.Capacity.Lengths[len(p.Capacity.Lengths)-1]
	e.Value, e.Source = fmt.Sprintf("%s of %s tokens", numberOf(f.Admitted, "sequence"), Group(int64(f.Tokens))), "the scheduler's rule (engine/sched)"
	e.step("a prompt begins when there are pages for all its tokens and one more, and for a further block of %d tokens for each running sequence", p.Account.Pool.Specs[0].BlockSize)
	e.step("windows hold the window alone: the chunk being computed is in scratch, not in pages")
	e.step("at steady state %d fit; maxNumSeqs lets %d run", f.Sequences, f.Running)
}

func (p *Plan) explainTotal(e *Explanation) {
	total := p.Ledger.Total()
	e.Value, e.Source = bytesOf(total), "the sum of the ledger"
	if e.Item == "budget" {
		e.Value, e.Source = bytesOf(p.Budget.Bytes), fromProfile
	}
	for _, i := range p.Ledger {
		if i.Basis.counts() {
			e.step("%s %s, %s", i.Name, bytesOf(i.Bytes), i.Basis)
		}
	}
	e.step("sum %s", bytesOf(total))
	if p.Budget.Bytes > 0 {
		e.step("budget %s: %s; left over %s", bytesOf(p.Budget.Bytes), p.Budget.Rule, bytesOf(p.Budget.Bytes-total))
	}
	if n := p.Ledger.HostTotal(); n > 0 {
		e.step("on the host, not counted: %s", bytesOf(n))
	}
}
