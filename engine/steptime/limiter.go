// Package steptime predicts how long a step takes from the times of earlier steps. It limits
// the prompt tokens of a step so that streams that decode in the same step wait no longer than
// a target. It must not read a clock: callers pass the measured seconds. Start reading at
// PrefillLimiter.PrefillBudget in limiter.go.
package steptime

// Grain is the granularity of a step's prefill in tokens. It is also the least that a step
// prefills while a prompt waits, however long decoding alone takes, so that no prompt starves.
const Grain = 16

// Work describes what a step computes.
type Work struct {
	Decode int   // tokens of decoding sequences, proposed tokens included
	Prompt int   // tokens of prompts, and of recomputed outputs
	Reads  int64 // sum over the tokens of Decode of the positions that each attends to
	// PromptReads is the same sum over the tokens of Prompt.
	PromptReads int64
	// Patches is how many patches of items the step encodes before its tokens, and Items how many
	// items those are.
	Patches, Items int
	// StepsPerToken is how many steps a decoding sequence takes for each token: 1, or 2 if a
	// sequence skips every other step. 0 counts as 1.
	StepsPerToken int
}

// With returns w plus n positions of a sequence that has from computed positions.
func (w Work) With(from, n int) Work {
	reads := int64(n)*int64(from) + int64(n)*int64(n+1)/2
	if n == 1 {
		w.Decode, w.Reads = w.Decode+1, w.Reads+reads
	} else {
		w.Prompt, w.PromptReads = w.Prompt+n, w.PromptReads+reads
	}
	return w
}

// Without undoes With.
func (w Work) Without(from, n int) Work {
	m := Work{}.With(from, n)
	w.Decode, w.Prompt, w.Reads, w.PromptReads = w.Decode-m.Decode, w.Prompt-m.Prompt, w.Reads-m.Reads, w.PromptReads-m.PromptReads
	return w
}

// PrefillLimiter learns the cost of steps and limits their prefill. It is not safe for
// concurrent use.
type PrefillLimiter struct {
	target float64 // seconds
	cost   cost
	encode encodeCost
	most   int // most prompt tokens of a step that was learned from
	over   int // counter of watch: up for each step above the target, down for each below it
	missed bool
}

// New returns a PrefillLimiter that has learned nothing, for a target in seconds above 0.
func New(target float64) *PrefillLimiter { return &PrefillLimiter{target: target, cost: newCost()} }

// Target returns the target in seconds.
func (p *PrefillLimiter) Target() float64 { return p.target }

// Retarget changes the target; what was learned stays.
func (p *PrefillLimiter) Retarget(seconds float64) { p.target, p.over, p.missed = seconds, 0, false }

// PrefillBudget returns how many of the next n positions of a sequence, which has from computed
// positions, a step that already has w may take. That is the largest number for which the step
// is predicted to meet the target: all n, or a multiple of Grain. The first prompt of a step that
// encodes nothing gets at least Grain. The prefill of a step is at most 1.5 times that of the largest step
// learned from plus Grain, since predictions far beyond it are unreliable.
func (p *PrefillLimiter) PrefillBudget(w Work, from, n int) int {
	least := 0
	if w.Prompt == 0 && w.Patches == 0 {
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
	low, high := least/Grain, (n-1)/Grain // low fits or is the minimum, high+1 does not fit
	for low < high {
		if mid := (low + high + 1) / 2; within(mid * Grain) {
			low = mid
		} else {
			high = mid - 1
		}
	}
	return max(least, low*Grain)
}

// within reports whether the predicted time of a step, plus twice the spread of earlier steps
// around their predictions, meets the target. It is false for a step that encodes if no encoding was
// learned from.
func (p *PrefillLimiter) within(w Work) bool {
	if w.Patches > 0 && !p.encode.known() {
		return false
	}
	return (p.cost.predict(w)+p.encode.predict(w))*float64(max(1, w.StepsPerToken))*(1+2*p.cost.spread()) <= p.target
}

// Fits reports whether a step that computes and encodes w is predicted to meet the target.
func (p *PrefillLimiter) Fits(w Work) bool { return p.within(w) }

// Learn adds a finished step: its work and the seconds since the end of the previous step, or
// since its launch if the device was idle. Of a step that encodes it learns the encoder's time
// alone: what its tokens are predicted not to take.
func (p *PrefillLimiter) Learn(w Work, seconds float64) {
	if seconds <= 0 || w.Decode+w.Prompt == 0 {
		return
	}
	if w.Patches > 0 {
		p.encode.learn(w, seconds-p.cost.predict(w))
		return
	}
	p.cost.learn(w, seconds)
	p.most = max(p.most, w.Prompt)
	p.watch(w)
}

// patience is after how many steps above the target Missed reports, and after how many below
// it Missed may report again.
const patience = 16

// watch counts steps whose decoding alone is predicted to exceed the target.
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

// alone returns the predicted seconds between two tokens of w's decoding sequences without
// any prefill.
func (p *PrefillLimiter) alone(w Work) float64 {
	return p.cost.predict(Work{Decode: w.Decode, Reads: w.Reads}) * float64(max(1, w.StepsPerToken))
}

// Missed returns the predicted seconds between two tokens of w's decoding sequences if decoding
// alone exceeds the target, otherwise 0. It reports once until decoding meets the target again.
func (p *PrefillLimiter) Missed(w Work) float64 {
	if p.missed || p.over < patience || w.Decode == 0 {
		return 0
	}
	p.missed = true
	return p.alone(w)
}
