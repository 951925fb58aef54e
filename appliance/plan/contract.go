package plan

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"vapp.dev/engine"
	"vapp.dev/schema"
)

// goal is a number of sequences of a length that must be able to run at once. The zero value
// requires nothing.
type goal struct{ seqs, tokens int }

// String returns for example "16 sequences of 32,768 tokens".
func (g goal) String() string {
	return fmt.Sprintf("%s of %s tokens", numberOf(g.seqs, "sequence"), Group(int64(g.tokens)))
}

// fits reports whether that many slabs hold the goal at steady state, and the model length and
// maxNumSeqs allow it.
func (g goal) fits(o engine.Options, a *engine.Account, slabs int) bool {
	if g.seqs == 0 {
		return true
	}
	return g.tokens <= o.MaxModelLen && g.seqs <= o.MaxNumSeqs && a.Pool.Sequences(slabs, g.tokens) >= g.seqs
}

// ContractError reports that a plan fits the machine but does not meet a requirement of the
// profile. Each of its Changes was planned and meets the contract alone.
type ContractError struct {
	Pos     schema.Position
	Path    string // require.concurrency.">=8"
	Want    int    // sequences
	Tokens  int    // of each
	Have    int    // sequences that fit
	Missing int64  // bytes of KV cache; 0 if memory is not the limit
	Changes []Change
	Verdict Verdict
	Verbose bool // Format prints the plan's ledger too

	plan *Plan
}

// Error returns one line.
func (e *ContractError) Error() string {
	remedy := "no single change of the profile meets it"
	if len(e.Changes) > 0 {
		remedy = "the smallest change that meets it is " + first(e.Changes).String()
	}
	return fmt.Sprintf("%v: %s: %s; %s", e.Pos, e.Path, e.Brief(), remedy)
}

// Brief returns what is required and what fits, without position and remedy.
func (e *ContractError) Brief() string {
	s := fmt.Sprintf("requires %s at once, %d fit", goal{e.Want, e.Tokens}, e.Have)
	if e.Missing > 0 {
		s += fmt.Sprintf(", %s of KV cache missing", Size(e.Missing))
	}
	return s
}

// Format prints, for %+v, the verdict and every single change that meets the contract.
func (e *ContractError) Format(f fmt.State, verb rune) {
	if verb != 'v' || !f.Flag('+') {
		io.WriteString(f, e.Error())
		return
	}
	t := &text{width: TextWidth}
	t.wrapped(fmt.Sprintf("%v: %s: ", e.Pos, e.Path), e.Brief())
	if v := e.Verdict; v.Memory != "" {
		v.write(t, v.Left != 0)
	}
	if e.Verbose && e.plan != nil {
		t.line("")
		e.plan.writeLedger(t)
	}
	if len(e.Changes) > 0 {
		t.line("")
		t.line("any one of these changes meets it:")
		t.b.WriteString(listChanges(e.Changes))
	}
	io.WriteString(f, t.b.String())
}

// checkContracts checks the profile's contracts and searches for changes that would meet them.
func (w resolved) checkContracts(p *Plan) error {
	e, err := w.firstUnmet(p)
	if e == nil {
		return err
	}
	w.goal = goal{e.Want, e.Tokens}
	e.Changes = w.changes(&shortError{one: int64(w.slabsFor(p.Account, w.goal)) * p.Capacity.SlabBytes})
	e.Verdict, e.plan = p.Verdict(), p
	e.Verdict.Fits, e.Verdict.Rule = false, "contract-missed"
	if e.Verdict.Note = "no single change of the profile meets the contract"; len(e.Changes) > 0 {
		e.Verdict.Note = "the smallest change that meets the contract is " + first(e.Changes).String()
	}
	return e
}

// firstUnmet returns the first contract that the plan does not meet, in descending order of the
// number of sequences; nil if it meets all.
func (w resolved) firstUnmet(p *Plan) (*ContractError, error) {
	r := w.in.Profile.Require
	if r == nil {
		return nil, nil
	}
	type contract struct {
		key string
		goal
	}
	var all []contract
	for key, tokens := range r.Concurrency {
		n, err := strconv.Atoi(strings.TrimPrefix(key, ">="))
		if err != nil || tokens <= 0 {
			return nil, w.in.Profile.Reject("require.concurrency", "%q of %d tokens: a contract is \">=N\": LENGTH", key, tokens)
		}
		all = append(all, contract{key, goal{n, int(tokens)}})
	}
	slices.SortFunc(all, func(a, b contract) int { return cmp.Compare(b.seqs, a.seqs) })
	for _, c := range all {
		slabs := p.Capacity.Slabs
		path := fmt.Sprintf("require.concurrency.%q", c.key)
		if c.fits(p.Options, p.Account, slabs) {
			margin := float64(slabs) / p.Account.Pool.Share(c.tokens) / float64(c.seqs)
			p.contracts = append(p.contracts, metContract{path, c.goal, margin})
			continue
		}
		e := &ContractError{Pos: w.in.Profile.Pos(path), Path: path, Want: c.seqs, Tokens: c.tokens}
		if c.tokens <= p.Options.MaxModelLen {
			e.Have = min(p.Account.Pool.Sequences(slabs, c.tokens), p.Options.MaxNumSeqs)
		}
		if need := w.slabsFor(p.Account, c.goal); need > slabs {
			e.Missing = int64(need-slabs) * p.Capacity.SlabBytes
		}
		return e, nil
	}
	return nil, nil
}

// slabsFor returns how many slabs the goal takes.
func (w resolved) slabsFor(a *engine.Account, g goal) int {
	var need int64
	for c, per := range a.Pool.PagesPerSlab {
		pages := int64(g.seqs) * int64(a.Pool.SequencePages(c, g.tokens))
		need += (pages + int64(per) - 1) / int64(per)
	}
	return int(need)
}
