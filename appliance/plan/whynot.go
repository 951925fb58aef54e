package plan

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"
)

// Answer is the result of WhyNot: whether a number of sequences of a length fits, and what would
// make it fit.
type Answer struct {
	Version int    `json:"version"`
	Profile string `json:"profile"`
	Seqs    int    `json:"sequences"`
	Tokens  int    `json:"tokens"` // of each, prompt and reply
	// Images are in each sequence, and take ImageTokens tokens each; 0: none.
	Images      int    `json:"images"`
	ImageTokens int    `json:"image_tokens"`
	Fits        bool   `json:"fits"`
	Have        int    `json:"have"`   // sequences of that length that fit, at steady state
	Reason      string `json:"reason"` // why not, "" if they fit
	// Needed are the changes that images need, all of them. HaveThen sequences fit with them.
	Needed   []Change `json:"needed"`
	HaveThen int      `json:"have_then"`
	// EncoderRows is the size of the encoder cache, with Needed; 0 without images.
	EncoderRows int `json:"encoder_rows"`
	// Each of Changes makes it fit alone, the smallest first; with Needed, if there are any. Pairs make
	// it fit together only; they are searched for if no change of the profile does alone.
	Changes []Change    `json:"changes"`
	Pairs   [][2]Change `json:"pairs"`
	// PlanOnly is why vapp up refuses the profile with Needed; "" if it does not.
	PlanOnly string `json:"plan_only"`

	goal Goal
}

// morePairs is how many pairs are listed.
const morePairs = 4

// WhyNot returns whether what the goal asks for fits at once. It fails like Make, except that a plan
// that does not fit is an Answer.
func WhyNot(in Inputs, g Goal) (*Answer, error) {
	w, err := resolve(in)
	if err != nil {
		return nil, err
	}
	return w.answer(g), nil
}

// answer is WhyNot for resolved inputs.
func (w resolved) answer(g Goal) *Answer {
	a := &Answer{Version: Version, Profile: w.in.Profile.Name, Seqs: g.Seqs, Tokens: g.Tokens, Images: g.Images, ImageTokens: g.ImageTokens,
		Needed: []Change{}, Changes: []Change{}, Pairs: [][2]Change{}, goal: g}
	if g.Images > 0 {
		v, why := w.withImages(a)
		if why != "" {
			a.Reason = why
			return a
		}
		w = v
	}
	w.goal = goal{a.Seqs, a.Tokens}
	if longest := w.in.Model.Config.MaxPositionEmbeddings; a.Tokens > longest {
		a.Reason = fmt.Sprintf("%s was made for %s tokens, and nothing changes that", w.in.Model.Source.Name, Group(int64(longest)))
		return a
	}
	one, lacks := w.judge(a)
	if lacks == "" && len(a.Needed) == 0 {
		a.Fits = true
		return a
	}
	if len(a.Needed) > 0 {
		a.HaveThen, a.Have = a.Have, 0
	}
	if lacks == "" {
		return a
	}
	if a.Reason == "" {
		a.Reason = lacks
	} else {
		a.Reason += "; with that changed: " + lacks
	}
	a.Changes = append(a.Changes, w.changes(&shortError{one: one, kvOnly: false})...)
	a.Changes = append(a.Changes, w.lessAsked(a.goal, a.Have+a.HaveThen)...)
	slices.SortStableFunc(a.Changes, func(a, b Change) int { return cmp.Compare(a.far, b.far) })
	if !slices.ContainsFunc(a.Changes, ofProfile) {
		a.Pairs = w.pairs(one)
	}
	return a
}

// judge fills in how many sequences fit. It returns why not the goal's, "" if they do, and the KV bytes
// of the goal.
func (w resolved) judge(a *Answer) (one int64, lacks string) {
	s, err := w.solve()
	if err != nil {
		if short, ok := err.(*shortError); ok {
			return short.one, fmt.Sprintf("not even one sequence of %s tokens fits: %s missing", Group(int64(short.tokens)), Size(short.need-short.have))
		}
		return 0, "the profile does not fit by itself: " + err.Error()
	}
	g, o, l := w.goal, s.options, s.account.KV
	slabs := s.account.Slabs(o.KVBytes)
	need := w.slabsFor(s.account, g)
	one = int64(need) * l.SlabBytes
	if g.tokens <= o.MaxModelLen {
		a.Have = min(s.account.Pool.Sequences(slabs, g.tokens), o.MaxNumSeqs)
	}
	a.EncoderRows = s.account.Items.Rows
	if a.Images > 0 && s.account.PlanOnly != nil {
		a.PlanOnly = because(s.account.PlanOnly)
	}
	switch {
	case g.fits(o, s.account, slabs):
		return one, ""
	case g.tokens > o.MaxModelLen && w.options.MaxModelLen == 0:
		return one, fmt.Sprintf("the longest sequence that fits has %s tokens (maxModelLen \"auto\")", Group(int64(o.MaxModelLen)))
	case g.tokens > o.MaxModelLen:
		return one, fmt.Sprintf("maxModelLen is %s", Group(int64(o.MaxModelLen)))
	case g.seqs > o.MaxNumSeqs && need <= slabs:
		return one, fmt.Sprintf("maxNumSeqs is %d", o.MaxNumSeqs)
	}
	return one, fmt.Sprintf("%s of KV cache missing: they take %s, there is %s",
		Size(int64(need-slabs)*l.SlabBytes), Size(one), Size(o.KVBytes))
}

// ofProfile reports whether a change is one of the profile and not of the question.
func ofProfile(c Change) bool { return c.Path != theAsk }

// theAsk is the path of a change of the question, the number and length of sequences.
const theAsk = "--why-not"

// lessAsked returns changes to fewer or shorter sequences, or to fewer images; g is the goal that was
// asked for.
func (w resolved) lessAsked(g Goal, have int) []Change {
	var out []Change
	add := func(less Goal, cost string, old, new int) {
		out = append(out, Change{theAsk, g.String(), less.String(), cost, 0.9 + 0.1*distance(float64(old), float64(new))})
	}
	if have > 0 && have < g.Seqs {
		less := g
		less.Seqs = have
		add(less, "fewer requests at once", g.Seqs, have)
	}
	if g.Tokens == 0 { // of images alone
		n, ok := most(1, int64(g.Images-1), func(n int64) bool {
			w.goal.tokens = int(n) * (g.ImageTokens + imageMarkers)
			return w.fits()
		})
		if less := g; ok {
			less.Images = int(n)
			add(less, "fewer images in a request", g.Images, less.Images)
		}
		return out
	}
	block := int64(w.options.BlockSize)
	n, ok := most((int64(g.imageTokens())+block)/block, int64(g.Tokens-1)/block, func(n int64) bool {
		w.goal.tokens = int(n * block)
		return w.fits()
	})
	if less := g; ok {
		less.Tokens = int(n * block)
		add(less, "shorter requests", g.Tokens, less.Tokens)
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
	g := goal{a.Seqs, a.Tokens}.String() + a.images()
	if a.Tokens == 0 {
		g = strings.TrimPrefix(a.images(), " with ")
	}
	switch {
	case a.Fits:
		t.hang("", fmt.Sprintf("%s fit: %s do, at steady state", g, Group(int64(a.Have))))
		a.writeEncoder(t)
		return t.b.String()
	case len(a.Needed) > 0:
		t.hang("", fmt.Sprintf("%s: not as the profile is: %s", g, a.Reason))
		a.writeNeeded(t)
	default:
		t.hang("", fmt.Sprintf("%s: not all fit, %s do: %s", g, Group(int64(a.Have)), a.Reason))
	}
	if len(a.Needed) > 0 && a.HaveThen >= a.Seqs {
		return t.b.String()
	}
	t.line("")
	if len(a.Changes) > 0 {
		head := "any one of these changes makes them fit:"
		if len(a.Needed) > 0 {
			head = "then any one of these changes makes them fit:"
		}
		t.line("%s", head)
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

// writeNeeded prints what images need, and what fits with it.
func (a *Answer) writeNeeded(t *text) {
	t.line("")
	head := "all of these changes are needed:"
	if len(a.Needed) == 1 {
		head = "this change is needed:"
	}
	t.line("%s", head)
	t.b.WriteString(listChanges(a.Needed))
	if a.HaveThen >= a.Seqs {
		t.line("then they fit: %s do, at steady state", Group(int64(a.HaveThen)))
	} else {
		t.line("then %s do, at steady state", Group(int64(a.HaveThen)))
	}
	a.writeEncoder(t)
}

// writeEncoder prints how many of the images the encoder cache holds, and whether they are plan-only.
func (a *Answer) writeEncoder(t *text) {
	if a.EncoderRows > 0 && a.Images > 0 {
		t.hang("", fmt.Sprintf("the encoder cache has %s rows, for %s at once; the others are encoded when a step comes to them",
			Group(int64(a.EncoderRows)), numberOf(a.EncoderRows/a.ImageTokens, "such image")))
	}
	if a.PlanOnly != "" {
		t.hang("", "plan-only: vapp up refuses it: "+a.PlanOnly)
	}
}

// JSON writes the answer as indented JSON.
func (a *Answer) JSON(w io.Writer) error { return writeIndented(w, a) }
