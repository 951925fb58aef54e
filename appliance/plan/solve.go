package plan

import (
	"fmt"
	"math"
	"sort"

	"vapp.dev/engine"
	"vapp.dev/engine/backend"
)

// solution is a choice of the model length and the KV arena that fits, with its account.
type solution struct {
	options engine.Options  // of the tightest rank
	account *engine.Account // of it, without the KV arena
	model   *engine.Model   // its part of the model
}

// accounts caches accounts. Options that are not in the key are the same for all of them, or
// affect only the KV arena.
type accounts map[accountKey]*engine.Account

type accountKey struct {
	model                           *engine.Model
	device                          string
	total                           int64
	length, seqs, batch, block, off int
	kv                              string
}

// account returns engine.NewAccount without a KV arena, cached by options. On a GPU accounts of
// other lengths are derived from the first one.
func (w resolved) account(o engine.Options) (*engine.Account, error) {
	key := accountKey{w.in.Model, w.in.Facts.Device, w.in.Facts.TotalBytes, o.MaxModelLen, o.MaxNumSeqs, o.MaxNumBatchedTokens, o.BlockSize, 0, o.KVFormat.String()}
	if w.graphsOff {
		key.off = 1
	}
	if a, ok := w.accounts[key]; ok {
		return a, nil
	}
	first := key
	first.length = 0
	if a, ok := w.accounts[first]; ok && w.onGPU() {
		a, err := a.AtLength(o, w.in.Model)
		if err == nil {
			w.accounts[key] = a
		}
		return a, err
	}
	a, err := engine.NewAccount(o, w.in.Model, w.in.Opener, w.in.Facts)
	if err == nil {
		w.accounts[key], w.accounts[first] = a, a
	}
	return a, err
}

// finalAccount returns an account of the solution that an engine can be opened with: its
// programs were recorded with the page tables of its length.
func (w resolved) finalAccount(s solution) (engine.Account, error) {
	o := s.options
	o.KVBytes, o.SwapBytes = 0, w.options.SwapBytes
	a, err := engine.NewAccount(o, w.in.Model, w.in.Opener, w.in.Facts)
	if err != nil {
		return engine.Account{}, err
	}
	if a.Reservation.Arenas != s.account.Reservation.Arenas {
		return engine.Account{}, fmt.Errorf("plan: %d tokens take %v bytes, derived from another length %v", o.MaxModelLen, a.Reservation.Arenas, s.account.Reservation.Arenas)
	}
	return *a, nil
}

// isDerived reports whether the account was derived from one of another length.
func isDerived(a *engine.Account) bool {
	return len(a.Reservation.Programs) > 0 && len(a.Reservation.Classes) > 0 && &a.Reservation.Classes[0] != &a.Reservation.Programs[0].Classes[0]
}

// shortError reports that memory is too small, and by how much.
type shortError struct {
	need, have int64 // bytes; have is the budget, or the KV cache that the profile fixes
	kvOnly     bool  // the KV cache that the profile fixes is too small for one sequence
	one        int64 // bytes of the KV arena for one sequence
	ledger     Ledger
	tokens     int // the length that was tried
}

func (e *shortError) Error() string {
	return fmt.Sprintf("needs %d bytes, has %d", e.need, e.have)
}

// budget returns the limit of the ledger's total.
func (w resolved) budget() Budget {
	total := w.in.Facts.TotalBytes
	switch {
	case w.utilization > 0:
		return Budget{int64(math.Floor(w.utilization * float64(total))), fmt.Sprintf("utilization %g of %s", w.utilization, Size(total))}
	case total > 0:
		return Budget{total, "all memory; memory.kvCache fixes the KV cache"}
	}
	return Budget{0, "memory unknown; memory.kvCache fixes the KV cache"}
}

// limit returns the budget in bytes, the largest int64 if it is unknown.
func (w resolved) limit() int64 {
	if b := w.budget().Bytes; b > 0 || w.utilization > 0 {
		return b
	}
	return math.MaxInt64
}

// solve finds the size of the KV arena and, if it is auto, the model length: the longest, in
// whole blocks, of which one sequence fits.
func (w resolved) solve() (solution, error) {
	if w.options.MaxModelLen > 0 {
		return w.solveLen(w.options.MaxModelLen)
	}
	longest := w.in.Model.Config.MaxPositionEmbeddings
	if !w.options.ChunkedPrefill {
		longest = min(longest, w.options.MaxNumBatchedTokens)
	}
	s, err := w.solveLen(longest)
	if _, short := err.(*shortError); !short {
		return s, err
	}
	block := w.options.BlockSize
	if _, err := w.solveLen(block); err != nil {
		return solution{}, err
	}
	n := sort.Search(longest/block, func(i int) bool {
		_, err := w.solveLen((i + 1) * block)
		return err != nil
	})
	return w.solveLen(max(1, n) * block)
}

// solveLen finds the size of the KV arena for a model length: the rest of the budget, or the
// size that the profile fixes. The arena must hold one sequence. All ranks have the same number of
// slabs: that of the rank with the least memory for them.
func (w resolved) solveLen(tokens int) (solution, error) {
	if err := w.check(); err != nil {
		return solution{}, err
	}
	o := w.options
	o.MaxModelLen, o.KVBytes = tokens, 0
	if w.onGPU() {
		var err error
		if o.Backend.Graphs, err = w.graphs(); err != nil {
			return solution{}, err
		}
	}
	slabs, swap := math.MaxInt, math.MaxInt
	accounts := make([]*engine.Account, len(w.stages))
	for i, m := range w.stages {
		v := w.at(m)
		acct, err := v.account(o)
		if err != nil {
			return solution{}, err
		}
		if err := v.checkSwap(acct); err != nil {
			return solution{}, err
		}
		accounts[i] = acct
		n := acct.Slabs(w.kvCache)
		if w.kvCache == 0 {
			n = v.largest(o, acct)
		}
		slabs, swap = min(slabs, n), min(swap, acct.Slabs(o.SwapBytes))
	}
	return w.tightest(o, accounts, slabs, swap)
}

// tightest returns the solution with that many slabs in the arena and in swap space, for the rank
// of which the least memory is left. The error is a *shortError of the rank that lacks the most.
func (w resolved) tightest(o engine.Options, accounts []*engine.Account, slabs, swap int) (solution, error) {
	var best solution
	var most int64 = -1
	var worst *shortError
	for i, m := range w.stages {
		v, acct, o := w.at(m), accounts[i], o
		if len(w.stages) > 1 {
			o.SwapBytes = int64(swap) * acct.KV.SlabBytes
		}
		one := acct.Pool.SequenceSlabs(o.MaxModelLen)
		total := v.withSlabs(o, acct, slabs).Total()
		if slabs < one || total > w.limit() {
			if e := v.short(o, acct, one, slabs); worst == nil || e.need-e.have > worst.need-worst.have {
				worst = e
			}
			continue
		}
		if total > most {
			most = total
			o.KVBytes = int64(slabs) * acct.KV.SlabBytes
			best = solution{o, acct, m}
		}
	}
	if worst != nil {
		return solution{}, worst
	}
	return best, nil
}

// at returns w for the rank that holds m.
func (w resolved) at(m *engine.Model) resolved {
	w.in.Model = m
	return w
}

// largest returns the largest number of slabs within the budget. Only the arena and the
// bookkeeping of its pages grow with it.
func (w resolved) largest(o engine.Options, acct *engine.Account) int {
	rest := w.limit() - w.withSlabs(o, acct, 0).Total()
	heap := pageHeap
	if w.onGPU() || rankOf(w.in.Model) > 0 {
		heap = func(engine.Options, *engine.Account, int) int64 { return 0 } // on the host, or of rank 0
	}
	return sort.Search(acct.Slabs(rest), func(i int) bool {
		n := i + 1
		return acct.Layout.Round(int64(n)*acct.KV.SlabBytes)+heap(o, acct, n) > rest
	})
}

// withSlabs returns the ledger with an arena of that many slabs. It needs no other account,
// since only the arena depends on the number.
func (w resolved) withSlabs(o engine.Options, acct *engine.Account, slabs int) Ledger {
	a := *acct
	a.Reservation.Arenas[backend.KV] = a.Layout.Round(int64(slabs) * a.KV.SlabBytes)
	a.Reservation.Arenas[backend.Swap] = a.Layout.Round(int64(a.Slabs(o.SwapBytes)) * a.KV.SlabBytes)
	o.KVBytes = int64(slabs) * a.KV.SlabBytes
	return w.ledger(o, &a)
}

func (w resolved) short(o engine.Options, acct *engine.Account, one, slabs int) *shortError {
	e := &shortError{tokens: o.MaxModelLen, one: int64(one) * acct.KV.SlabBytes}
	if w.kvCache > 0 && slabs < one {
		e.kvOnly, e.need, e.have = true, e.one, w.kvCache
		e.ledger = w.withSlabs(o, acct, one)
		return e
	}
	if w.kvCache > 0 {
		one = slabs
	}
	e.ledger = w.withSlabs(o, acct, one)
	e.need, e.have = e.ledger.Total(), w.limit()
	return e
}
