package plan

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"vapp.dev/schema"
)

// Answer is the result of WhyNot: whether a number of sequences of a length fits, and what would
// make it fit.
type Answer struct {
	Version int    `json:"version"`
	Profile string `json:"profile"`
	Seqs    int    `json:"sequences"`
	Tokens  int    `json:"tokens"` // of each, prompt and reply
	Fits    bool   `json:"fits"`
	Have    int    `json:"have"`   // sequences of that length that fit, at steady state
	Reason  string `json:"reason"` // why not, "" if they fit
	// Each of Changes makes it fit alone, the smallest first. Pairs make it fit together only;
	// they are searched for if no change of the profile does alone.
	Changes []Change    `json:"changes"`
	Pairs   [][2]Change `json:"pairs"`
}

// ParseGoal parses "16x32K" as 16 sequences of 32,768 tokens. A length alone means one sequence.
func ParseGoal(s string) (seqs, tokens int, err error) {
	seqs = 1
	length := s
	if n, of, ok := strings.Cut(s, "x"); ok {
		if seqs, err = strconv.Atoi(n); err != nil || seqs < 1 || seqs > 1<<20 {
			return 0, 0, fmt.Errorf("%q: %q is no number of sequences; write it as 16x32K", s, n)
		}
		length = of
	}
	c, err := schema.ParseCount(length)
	if err != nil || c < 1 || c > 1<<30 {
		return 0, 0, fmt.Errorf("%q: %q is no length in tokens; write it as 16x32K", s, length)
	}
	return seqs, int(c), nil
}

// morePairs is how many pairs are listed.
const morePairs = 4

// WhyNot returns whether seqs sequences of tokens tokens fit at once. It fails like Make, except
// that a plan that does not fit is an Answer.
func WhyNot(in Inputs, seqs, tokens int) (*Answer, error) {
	w, err := resolve(in)
	if err != nil {
		return nil, err
	}
	return w.answer(seqs, tokens), nil
}

// answer is WhyNot for resolved inputs.
func (w resolved) answer(seqs, tokens int) *Answer {
	in := w.in
	a := &Answer{Version: Version, Profile: in.Profile.Name, Seqs: seqs, Tokens: tokens, Changes: []Change{}, Pairs: [][2]Change{}}
	w.goal = goal{seqs, tokens}
	if longest := in.Model.Config.MaxPositionEmbeddings; tokens > longest {
		a.Reason = fmt.Sprintf("%s was made for %s tokens, and nothing changes that", in.Model.Source.Name, Group(int64(longest)))
		return a
	}
	one := w.judge(a)
	if a.Fits {
		return a
	}
	a.Changes = append(a.Changes, w.changes(&shortError{one: one, kvOnly: false})...)
	a.Changes = append(a.Changes, w.lessAsked(a.Have)...)
	slices.SortStableFunc(a.Changes, func(a, b Change) int { return cmp.Compare(a.far, b.far) })
	if !slices.ContainsFunc(a.Changes, ofProfile) {
		a.Pairs = w.pairs(one)
	}
	return a
}

// judge fills in whether the goal is met, how many sequences fit, and why not more. one is the
// KV bytes of the goal.
func (w resolved) judge(a *Answer) (one int64) {
	s, err := w.solve()
	if err != nil {
		a.Reason = "the profile does not fit by itself: " + err.Error()
		if short, ok := err.(*shortError); ok {
			a.Reason = fmt.Sprintf("not even one sequence of %s tokens fits: %s missing", Group(int64(short.tokens)), Size(short.need-short.have))
			return short.one
		}
		return 0
	}
	g, o, l := w.goal, s.options, s.account.KV
	slabs := s.account.Slabs(o.KVBytes)
	need := w.slabsFor(s.account, g)
	if g.tokens <= o.MaxModelLen {
		a.Have = min(s.account.Pool.Sequences(slabs, g.tokens), o.MaxNumSeqs)
	}
	a.Fits = g.fits(o, s.account, slabs)
	switch {
	case a.Fits:
	case g.tokens > o.MaxModelLen:
		a.Reason = fmt.Sprintf("maxModelLen is %s", Group(int64(o.MaxModelLen)))
	case g.seqs > o.MaxNumSeqs && need <= slabs:
		a.Reason = fmt.Sprintf("maxNumSeqs is %d", o.MaxNumSeqs)
	default:
		a.Reason = fmt.Sprintf("%s of KV cache missing: they take %s, there is %s",
			Size(int64(need-slabs)*l.SlabBytes), Size(int64(need)*l.SlabBytes), Size(o.KVBytes))
	}
	return int64(need) * l.SlabBytes
}

// ofProfile reports whether a change is one of the profile and not of the question.
func ofProfile(c Change) bool { return c.Path != theAsk }

// theAsk is the path of a change of the question, the number and length of sequences.
const theAsk = "--why-not"

// lessAsked returns changes to fewer or shorter sequences.
func (w resolved) lessAsked(have int) []Change {
	var out []Change
	g := w.goal
	old := fmt.Sprintf("%dx%d", g.seqs, g.tokens)
	if have > 0 && have < g.seqs {
		out = append(out, Change{theAsk, old, fmt.Sprintf("%dx%d", have, g.tokens), "fewer requests at once", 0.9 + 0.1*distance(float64(g.seqs), float64(have))})
	}
	block := int64(w.options.BlockSize)
	n, ok := most(1, int64(g.tokens-1)/block, func(n int64) bool {
		w.goal.tokens = int(n * block)
		return w.fits()
	})
	if ok {
		out = append(out, Change{theAsk, old, fmt.Sprintf("%dx%d", g.seqs, n*block), "shorter requests", 0.9 + 0.1*distance(float64(g.tokens), float64(n*block))})
	}
	return out
}

// pairs returns pairs of changes that fit together: a variant, and a change that fits with it.
func (w resolved) pairs(one int64) [][2]Change {
	out := [][2]Change{}
	seen := map[string]bool{}
	variants := w.variants()
	shares := slices.ContainsFunc(variants, func(v variant) bool { return v.Path == "parallel.tensor" })
	for _, v := range variants {
		if shares && v.Path == "parallel.pipeline" {
			continue // of more devices, the likely way
		}
		for _, c := range v.resolved.tryKnobs(variantKnobs, &shortError{one: one}) {
			key, swapped := v.Path+" "+c.Path, c.Path+" "+v.Path
			if c.Path == v.Path || seen[key] || seen[swapped] {
				continue
			}
			seen[key] = true
			out = append(out, [2]Change{v.Change, c})
		}
	}
	slices.SortStableFunc(out, func(a, b [2]Change) int { return cmp.Compare(a[0].far+a[1].far, b[0].far+b[1].far) })
	return out[:min(len(out), morePairs)]
}

// String returns the answer as text.
func (a *Answer) String() string {
	t := &text{width: TextWidth}
	g := goal{a.Seqs, a.Tokens}
	if a.Fits {
		t.hang("", fmt.Sprintf("%v fit: %s do, at steady state", g, Group(int64(a.Have))))
		return t.b.String()
	}
	t.hang("", fmt.Sprintf("%v: not all fit, %s do: %s", g, Group(int64(a.Have)), a.Reason))
	t.line("")
	if len(a.Changes) > 0 {
		t.line("any one of these changes makes them fit:")
		t.b.WriteString(listChanges(a.Changes))
	}
	if len(a.Pairs) == 0 && !slices.ContainsFunc(a.Changes, ofProfile) {
		t.line("no change of one field, and no pair of the likely ones, makes all of them fit")
	}
	if len(a.Pairs) > 0 {
		t.line("these do together:")
	}
	for _, p := range a.Pairs {
		t.hang("  ", fmt.Sprintf("%v and %v", p[0], p[1]))
		t.hang("      ", p[0].Cost+"; "+p[1].Cost)
	}
	return t.b.String()
}

// JSON writes the answer as indented JSON.
func (a *Answer) JSON(w io.Writer) error { return writeIndented(w, a) }
