package ref

import (
	"math"
	"slices"
)

// SampleArgs are the sampling parameters and buffers for one row of logits.
type SampleArgs struct {
	Logits  []float32 // [vocab]; overwritten
	Grammar []uint32  // bit set: allowed; nil: no mask
	Allowed []uint32  // bit set: allowed; nil: no mask
	Bias    []Bias
	History []int32 // the tokens of the sequence; the first Prompt are prompt
	Prompt  int

	Repetition, Frequency, Presence float32 // 1, 0, 0: off
	Temperature                     float32 // < 1e-5: arg max
	MinP, TopP                      float32 // 0, 1: off
	TopK                            int     // 0: off
	Uniform                         float64 // in [0,1): the random number

	UseTarget bool // Target is the token: no edits, no draw
	Target    int32
	Logprobs  bool      // fill Logprob, Rank and Top
	TopIDs    []int32   // the best tokens, best first, lowest id first among equals
	TopProbs  []float32 // their raw logprobs; as long as TopIDs, at most vocab

	Workspace SampleWorkspace
}

// Bias adds Value to the logit of Token; −Inf forbids it.
type Bias struct {
	Token int32
	Value float32
}

// SampleWorkspace is scratch memory of Sample, [vocab] each.
type SampleWorkspace struct {
	Raw    []float32
	Order  []int32
	Counts []int32 // zero before and after
}

// Sampled is the result of Sample.
type Sampled struct {
	Token   int32   // −1: none
	Logprob float32 // raw logprob of Token
	Rank    int32   // tokens whose raw logit is ≥ that of Token
}

// Sample turns logits into a token, in this order:
//
//  1. Logits whose Grammar bit is clear become −Inf.
//  2. Raw logprobs are of these logits: z − log Σ e^z, see LogSumExp, rounded to
//     float32. Rank and Top compare the logits themselves.
//  3. Logits whose Allowed bit is clear become −Inf.
//  4. Bias is added in float32, entry by entry.
//  5. Penalties, in float32: the logit of a token of History is divided by
//     Repetition if > 0, else multiplied by it; then a token that History has c
//     times after Prompt loses Frequency·c, then Presence.
//  6. Temperature < 1e-5: the largest logit, the lowest id of equals; done. Else a
//     token's weight is e^((z−max)/max(Temperature, 0.01)): difference and
//     quotient in float32, the exponential of that rounded to float32.
//  7. MinP drops weights below MinP (the largest weight is 1).
//  8. TopK drops logits below the k-th largest of those left; ties stay.
//  9. TopP < 1 walks those left from the best down, lowest id first among
//     equals, and drops a token when the weights before it sum to TopP·total or
//     more; the best stays. Sums are float64, total's in the order of ids.
//  10. The token is the first in the order of ids at which the float64 sum of the
//     weights left exceeds Uniform·total of those left; the last one left where
//     rounding lets none exceed it.
//
// The token is −1 and nothing else is filled where a given logit is NaN or +Inf,
// or none is finite after step 1. It is −1 also where none is finite after step
// 5, or one became NaN or +Inf.
func Sample(a SampleArgs) Sampled {
	z := a.Logits
	if !usable(z) {
		return Sampled{Token: -1}
	}
	mask(z, a.Grammar)
	if !usable(z) {
		return Sampled{Token: -1}
	}
	raw := a.Workspace.Raw[:len(z)]
	copy(raw, z)
	out := Sampled{Token: a.Target}
	if !a.UseTarget {
		out.Token = choose(a)
	}
	if a.Logprobs && out.Token >= 0 {
		lse := LogSumExp(raw)
		out.Logprob = float32(float64(raw[out.Token]) - lse)
		for _, x := range raw {
			if x >= raw[out.Token] {
				out.Rank++
			}
		}
		if n := len(a.TopIDs); n > 0 {
			copy(a.TopIDs, descending(raw, a.Workspace.Order)[:n])
			for i, id := range a.TopIDs {
				a.TopProbs[i] = float32(float64(raw[id]) - lse)
			}
		}
	}
	return out
}

// LogSumExp returns max + log Σ e^(z−max) in float64, summed in the order of ids.
func LogSumExp(z []float32) float64 {
	top, sum := float64(slices.Max(z)), 0.0
	for _, x := range z {
		sum += math.Exp(float64(x) - top)
	}
	return top + math.Log(sum)
}

// usable reports whether no logit is NaN or +Inf and at least one is finite.
func usable(z []float32) bool {
	finite := false
	for _, x := range z {
		if x != x || x > math.MaxFloat32 {
			return false
		}
		finite = finite || x >= -math.MaxFloat32
	}
	return finite
}

// mask sets the logits of tokens whose bit is clear to −Inf.
func mask(z []float32, bits []uint32) {
	if bits == nil {
		return
	}
	for i := range z {
		if bits[i/32]>>(i%32)&1 == 0 {
			z[i] = float32(math.Inf(-1))
		}
	}
}

// Penalizes reports whether History is read.
func (a SampleArgs) Penalizes() bool {
	return a.Repetition != 1 || a.Frequency != 0 || a.Presence != 0
}

// penalize does step 5 of Sample.
func penalize(a SampleArgs) {
	if !a.Penalizes() {
		return
	}
	counts := a.Workspace.Counts
	for i, id := range a.History {
		if i >= a.Prompt {
			counts[id]++
		}
	}
	const seen = -1 // counts are cleared as they are applied
	for _, id := range a.History {
		c := counts[id]
		if c == seen {
			continue
		}
		counts[id] = seen
		if z := &a.Logits[id]; *z > 0 {
			*z /= a.Repetition
		} else {
			*z *= a.Repetition
		}
		if c > 0 {
			a.Logits[id] -= float32(a.Frequency * float32(c))
			a.Logits[id] -= a.Presence
		}
	}
	for _, id := range a.History {
		counts[id] = 0
	}
}

// descending returns every id, best first, lowest id first among equals.
func descending(z []float32, order []int32) []int32 {
	order = order[:len(z)]
	for i := range order {
		order[i] = int32(i)
	}
	slices.SortFunc(order, func(a, b int32) int {
		switch {
		case z[a] > z[b]:
			return -1
		case z[a] < z[b]:
			return 1
		}
		return int(a - b)
	})
	return order
}

// argmax returns the lowest id of the largest logit.
func argmax(z []float32) int32 {
	best := 0
	for i, x := range z {
		if x > z[best] {
			best = i
		}
	}
	return int32(best)
}
