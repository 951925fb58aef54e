package ref

import "math"

// Route selects the len(ids) largest of logits, the lowest index of equals first. Each weight
// is the softmax over the selected logits, in float64, rounded once, times scale[index]; a
// nil scale is ones.
func Route(logits, scale []float32, ids []int32, weights []float32) {
	for k := range ids {
		best := -1
		for i, x := range logits {
			if taken(ids[:k], i) {
				continue
			}
			if best < 0 || x > logits[best] {
				best = i
			}
		}
		ids[k] = int32(best)
	}
	sum := 0.0
	for _, id := range ids {
		sum += math.Exp(float64(logits[id]) - float64(logits[ids[0]]))
	}
	for k, id := range ids {
		w := math.Exp(float64(logits[id])-float64(logits[ids[0]])) / sum
		weights[k] = float32(w)
		if scale != nil {
			weights[k] *= scale[id]
		}
	}
}

func taken(ids []int32, i int) bool {
	for _, id := range ids {
		if int(id) == i {
			return true
		}
	}
	return false
}
