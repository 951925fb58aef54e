package steptime

import "math/bits"

// sizes is the number of sizes of items: size k has 2^(k−1) to 2^k−1 patches.
const sizes = 32

// follows is the weight of a new measurement of a size.
const follows = 0.3

// encodeCost predicts the seconds that the encoding of items takes: a number of seconds for each
// patch of an item, by the size of the item, since a patch attends to all patches of its item.
type encodeCost struct {
	each [sizes]float64 // seconds of a patch; 0: not measured
}

// sizeOf returns the size of an average item of w.
func sizeOf(w Work) int { return min(sizes-1, bits.Len(uint(w.Patches/max(1, w.Items)))) }

// known reports whether any size was measured.
func (c *encodeCost) known() bool { return c.each != [sizes]float64{} }

// predict returns the seconds of w's encoding: 0 if it has none. A size that was not measured takes
// the seconds of the next smaller one, doubled for each size between, as if all of them were
// attention, or else those of the next larger one.
func (c *encodeCost) predict(w Work) float64 {
	if w.Patches == 0 {
		return 0
	}
	size := sizeOf(w)
	for k := size; k >= 0; k-- {
		if c.each[k] > 0 {
			return c.each[k] * float64(int(1)<<(size-k)) * float64(w.Patches)
		}
	}
	for k := size + 1; k < sizes; k++ {
		if c.each[k] > 0 {
			return c.each[k] * float64(w.Patches)
		}
	}
	return 0
}

// learn adds the measured seconds of w's encoding. It has taken some time, whatever the prediction of
// the rest of the step leaves.
func (c *encodeCost) learn(w Work, seconds float64) {
	each := &c.each[sizeOf(w)]
	now := max(seconds, 1e-9) / float64(w.Patches)
	if *each == 0 {
		*each = now
		return
	}
	*each += follows * (now - *each)
}
