package ref

import "math"

// Score is the function of a row of logits that gives an expert's weight.
type Score uint8

// The scores.
const (
	SelectedSoftmax Score = iota // softmax over the selected experts
	Softmax                      // softmax over all experts
	Sigmoided                    // sigmoid of the expert's logit
	Logit                        // the logit itself
)

// Router selects experts and computes their weights. The zero value gives the softmax over the
// largest logits.
type Router struct {
	Score     Score
	Normalize bool // weights are divided by their sum, at least 10⁻²⁰
	// Correction [experts] is added to the scores that are compared; nil: none.
	Correction []float32
	// Groups are runs of experts, of which the TopGroups remain whose GroupTop best have the largest
	// sum, one or two; 0: two. Without Groups all experts are compared.
	Groups, TopGroups, GroupTop int
	Factor                      float32   // of the weights; 0: 1
	Scale                       []float32 // [experts], factors of the weights; nil: ones
}

// Route selects len(ids) experts, the best first and the lowest index of equals. Without correction
// and groups it compares logits, else scores rounded to F32 plus the correction. Weights are
// computed in float64 and rounded once, then multiplied by Scale.
func (r Router) Route(logits []float32, ids []int32, weights []float32) {
	score := r.scores(logits)
	keys := logits
	if r.Correction != nil || r.Groups > 0 {
		keys = make([]float32, len(logits))
		for i := range keys {
			keys[i] = float32(score(int32(i)))
			if r.Correction != nil {
				keys[i] += r.Correction[i]
			}
		}
	}
	groups := []int32{0}
	size := len(keys)
	if r.Groups > 0 {
		size = len(keys) / r.Groups
		sums := make([]float32, r.Groups)
		for g := range sums {
			two := make([]int32, 2)
			best(keys[g*size:][:size], two, []int32{0}, size)
			if sums[g] = keys[g*size+int(two[0])]; r.GroupTop != 1 {
				sums[g] += keys[g*size+int(two[1])]
			}
		}
		groups = make([]int32, r.TopGroups)
		best(sums, groups, []int32{0}, len(sums))
	}
	best(keys, ids, groups, size)
	if r.Score == SelectedSoftmax {
		score = func(i int32) float64 { return math.Exp(float64(logits[i]) - float64(logits[ids[0]])) }
	}
	sum := 0.0
	for _, id := range ids {
		sum += score(id)
	}
	if r.Score != SelectedSoftmax && !r.Normalize {
		sum = 1
	}
	factor := 1.0
	if r.Factor != 0 {
		factor = float64(r.Factor)
	}
	for k, id := range ids {
		weights[k] = float32(score(id) / math.Max(sum, 1e-20) * factor)
		if r.Scale != nil {
			weights[k] *= r.Scale[id]
		}
	}
}

// scores returns the score of each expert; for SelectedSoftmax it depends on the selection and is nil.
func (r Router) scores(logits []float32) func(int32) float64 {
	switch r.Score {
	case Softmax:
		largest, sum := math.Inf(-1), 0.0
		for _, x := range logits {
			largest = math.Max(largest, float64(x))
		}
		for _, x := range logits {
			sum += math.Exp(float64(x) - largest)
		}
		return func(i int32) float64 { return math.Exp(float64(logits[i])-largest) / sum }
	case Logit:
		return func(i int32) float64 { return float64(logits[i]) }
	case Sigmoided:
		return func(i int32) float64 { return 1 / (1 + math.Exp(-float64(logits[i]))) }
	}
	return nil
}

// best sets ids to the indices of the largest keys, in falling order, the lowest of equals first.
// Only keys in groups of size are compared.
func best(keys []float32, ids, groups []int32, size int) {
	for k := range ids {
		at := -1
		for i, x := range keys {
			if taken(ids[:k], i) || !taken(groups, i/size) {
				continue
			}
			if at < 0 || x > keys[at] {
				at = i
			}
		}
		ids[k] = int32(at)
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
