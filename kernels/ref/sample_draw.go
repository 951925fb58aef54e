package ref

import "math"

// choose does steps 3 to 10 of Sample.
func choose(a SampleArgs) int32 {
	z := a.Logits
	mask(z, a.Allowed)
	for _, b := range a.Bias {
		z[b.Token] += b.Value
	}
	penalize(a)
	if !usable(z) {
		return -1
	}
	best := argmax(z)
	if a.Temperature < 1e-5 {
		return best
	}
	top, t := z[best], max(a.Temperature, 0.01)
	var order []int32
	if a.TopK > 0 && a.TopK < len(z) || a.TopP < 1 {
		order = descending(z, a.Workspace.Order)
	}
	least := float32(math.Inf(-1)) // the k-th largest logit
	if a.TopK > 0 && a.TopK < len(z) {
		least = z[order[a.TopK-1]]
	}
	// From here on z has weights.
	for i, x := range z {
		w := float32(math.Exp(float64((x - top) / t)))
		if w < a.MinP || x < least {
			w = 0
		}
		z[i] = w
	}
	if a.TopP < 1 {
		nucleus(z, order, float64(a.TopP)*total(z))
	}
	return draw(z, a.Uniform*total(z))
}

// nucleus drops the tokens after the best ones whose weights sum to enough.
func nucleus(w []float32, order []int32, enough float64) {
	sum := float64(w[order[0]])
	for _, id := range order[1:] {
		if sum >= enough {
			w[id] = 0
		}
		sum += float64(w[id])
	}
}

func total(w []float32) float64 {
	sum := 0.0
	for _, x := range w {
		sum += float64(x)
	}
	return sum
}

// draw returns the first id at which the sum of the weights exceeds u.
func draw(w []float32, u float64) int32 {
	sum, last := 0.0, int32(0)
	for i, x := range w {
		if x == 0 {
			continue
		}
		last = int32(i)
		if sum += float64(x); sum > u {
			break
		}
	}
	return last
}
