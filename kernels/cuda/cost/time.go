package cost

import "math"

// Time is how long a launch takes, in seconds, and what bounds it.
type Time struct {
	Memory, Matrix, Issue, Longest float64 // each alone
	Fixed                          float64 // the gap before the launch, its ramp
}

// Seconds returns the whole time: the longest of the four, and Fixed.
func (t Time) Seconds() float64 { return max(t.Memory, t.Matrix, t.Issue, t.Longest) + t.Fixed }

// Bound names what bounds the launch.
func (t Time) Bound() string {
	switch most := max(t.Memory, t.Matrix, t.Issue, t.Longest); {
	case t.Fixed > most:
		return "launch"
	case most == t.Memory:
		return "memory"
	case most == t.Matrix:
		return "matrix"
	case most == t.Issue:
		return "issue"
	}
	return "longest block"
}

// rate returns the operations a second of a unit on all multiprocessors.
func (g GPU) rate(u Unit) float64 {
	wide := max(g.FP8, g.BF16)
	switch u {
	case Sync:
		return g.BF16 * g.Shares.Sync
	case Sync8:
		return wide * g.Shares.Sync
	case Warpgroup:
		return g.BF16 * g.Shares.Warpgroup
	case Group8:
		return wide * g.Shares.Warpgroup
	}
	return 256 * float64(g.SMs) * g.Clock // 128 fused multiply-adds a clock and multiprocessor
}

// Time returns how long a launch with this work takes. Multiprocessors take one block after the other: where the
// blocks are no multiple of them, some compute while others have none.
func (g GPU) Time(w Work) Time {
	gap := g.Shares.Gap
	if w.Dependent && g.Shares.Dependent > 0 {
		gap = g.Shares.Dependent
	}
	t := Time{Fixed: gap + g.Shares.Ramp}
	if w.Blocks == 0 {
		return Time{Fixed: gap}
	}
	sms, blocks := float64(g.SMs), max(1, w.Blocks)
	used := min(sms, blocks)
	turns := math.Ceil(blocks/sms) * sms / blocks // of the busiest multiprocessor beside the mean
	one := g.Shares.SM * g.Clock                  // bytes a second of one multiprocessor
	memory := min(g.Bandwidth*g.Shares.Memory, used*one)
	second := memory
	if w.Values < g.L2/2 {
		second = min(g.Bandwidth*g.Shares.L2, used*one)
	}
	if w.Dependent && g.Shares.Dependent > 0 {
		// Read in the gap, and before the first bytes would come: half of the ramp. What more is read while the kernel before
		// runs is not counted.
		t.Fixed -= min(w.Prefetched/memory, gap+g.Shares.Ramp/2)
	}
	slots := 4 * g.Clock * g.Shares.Issue // instructions a second of one multiprocessor
	t.Memory = (w.Weights+w.KV)/memory + w.Values/second
	t.Matrix = w.Issued / g.rate(w.Code.Unit) * turns
	t.Issue = w.Instructions / (slots * sms) * turns
	if w.Longest > 1 {
		t.Longest = w.Longest / blocks * max((w.Weights+w.KV)/one, w.Instructions/slots, w.Issued/g.rate(w.Code.Unit)*sms)
	}
	return t
}

// Limit returns the seconds in which the GPU reads the weights, keys and values of launches at what its memory reaches, or
// multiplies at what its matrix units reach, whichever takes longer: the roof under which a step stays. Activations do
// not count: kernels that pass them on in registers would not move them.
func (g GPU) Limit(works []Work) float64 {
	memory, matrix := 0.0, 0.0
	for _, w := range works {
		memory += (w.Weights + w.KV) / (g.Bandwidth * g.Shares.Memory)
		unit := Warpgroup
		if w.Code.Unit == Sync8 || w.Code.Unit == Group8 {
			unit = Group8
		}
		matrix += w.Flops / g.rate(unit)
	}
	return max(memory, matrix)
}
