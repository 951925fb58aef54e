// Package pace foretells how long a step takes from those before it, and says how
// many tokens of prompts one may take so that the streams which decode beside them
// wait no longer than a target. It is pure: it has no clock and is told seconds.
package steptime

// Grain is what a step's tokens of prompts are a multiple of, and the fewest that it takes
// where a prompt waits, however long decoding alone lasts: no prompt starves.
const Grain = 16

// Work is what a step computes.
type Work struct {
	Decode int   // tokens of sequences that decode, proposals included
	Prompt int   // tokens of prompts, and of outputs that are computed again
	Reads  int64 // positions that the tokens of Decode attend to, over all of them
	// PromptReads is Reads of the tokens of Prompt.
	PromptReads int64
	// StepsPerToken is how many steps come between two tokens of a sequence that decodes: 1, or 2
	// where one sits a step out. 0 counts as 1.
	StepsPerToken int
}

// With is w and n positions of a sequence more, of which from are computed.
func (w Work) With(from, n int) Work {
	reads := int64(n)*int64(from) + int64(n)*int64(n+1)/2
	if n == 1 {
		w.Decode, w.Reads = w.Decode+1, w.Reads+reads
	} else {
		w.Prompt, w.PromptReads = w.Prompt+n, w.PromptReads+reads
	}
	return w
}

// Without takes back what With added.
func (w Work) Without(from, n int) Work {
	m := Work{}.With(from, n)
	w.Decode, w.Prompt, w.Reads, w.PromptReads = w.Decode-m.Decode, w.Prompt-m.Prompt, w.Reads-m.Reads, w.PromptReads-m.PromptReads
	return w
}

// PrefillLimiter learns from finished steps. It is used by one goroutine.
type PrefillLimiter struct {
	target float64 // seconds
	cost   cost
	most   int // tokens of prompts in the largest step that was learned from
	over   int // steps in a row that foretell that decoding alone takes longer
	missed bool
}

// New is a PrefillLimiter that has learned nothing, for a target in seconds above 0.
func New(target float64) *PrefillLimiter { return &PrefillLimiter{target: target, cost: newCost()} }

// Target is what New was given, or Retarget since, in seconds.
func (p *PrefillLimiter) Target() float64 { return p.target }

// Retarget changes the target; what was learned stays.
func (p *PrefillLimiter) Retarget(seconds float64) { p.target, p.over, p.missed = seconds, 0, false }

// Prompt is how many of the next n positions of a sequence, of which from are computed,
// a step may take that has w already: as many as are foretold to keep it within the
// target, a multiple of Grain where they are not all, and Grain at least for the first.
// It grows by half of what was learned from at most: nothing is foretold far beyond it.
func (p *PrefillLimiter) PrefillBudget(w Work, from, n int) int {
	least := 0
	if w.Prompt == 0 {
		least = min(n, Grain)
	}
	grown := (p.most + p.most/2 + Grain - w.Prompt) / Grain * Grain
	n = min(n, max(least, grown))
	if p.most == 0 || n <= least {
		return least
	}
	within := func(n int) bool { return p.within(w.With(from, n)) }
	if within(n) {
		return n
	}
	low, high := least/Grain, (n-1)/Grain // low fits or is owed, high+1 does not
	for low < high {
		if mid := (low + high + 1) / 2; within(mid * Grain) {
			low = mid
		} else {
			high = mid - 1
		}
	}
	return max(least, low*Grain)
}

// within says that a step is foretold to keep to the target, twice the spread that steps
// showed around what was foretold of them included.
func (p *PrefillLimiter) within(w Work) bool {
	return p.cost.predict(w)*float64(max(1, w.StepsPerToken))*(1+2*p.cost.spread()) <= p.target
}

// Learn is told of a finished step: its work, and the seconds from the end of the step
// before, or from its launch where the device was idle.
func (p *PrefillLimiter) Learn(w Work, seconds float64) {
	if seconds <= 0 || w.Decode+w.Prompt == 0 {
		return
	}
	p.cost.learn(w, seconds)
	p.most = max(p.most, w.Prompt)
	p.watch(w)
}

// Steps in a row after which Missed says so, and after which it would again.
const patience = 16

// watch looks at whether decoding alone takes longer than the target.
func (p *PrefillLimiter) watch(w Work) {
	if w.Decode == 0 {
		return
	}
	alone := p.alone(w)
	switch {
	case alone > p.target && p.over < patience:
		p.over++
	case alone < 0.95*p.target && p.over > 0:
		if p.over--; p.over == 0 {
			p.missed = false
		}
	}
}

// alone is how long the sequences of w that decode would take without prompts, from
// one token to the next.
func (p *PrefillLimiter) alone(w Work) float64 {
	return p.cost.predict(Work{Decode: w.Decode, Reads: w.Reads}) * float64(max(1, w.StepsPerToken))
}

// Missed says, once while it lasts, that what decodes takes longer than the target
// without any prompt, and how long: w is a step's work, the answer seconds. It is 0
// where there is nothing to say.
func (p *PrefillLimiter) Missed(w Work) float64 {
	if p.missed || p.over < patience || w.Decode == 0 {
		return 0
	}
	p.missed = true
	return p.alone(w)
}
