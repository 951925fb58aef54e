package chat

// Repetition ends a reply whose last tokens are a pattern of MinPattern to MaxPattern tokens,
// repeated MinCount times.
type Repetition struct {
	MinPattern, MaxPattern, MinCount int
}

// maxPattern bounds MaxPattern: every token is compared with that many earlier ones.
const maxPattern = 2048

func checkRepetition(a *RequestParams, _ *Settings) error {
	r := a.Repetition
	const name = "repetition_detection"
	switch {
	case r == nil:
		return nil
	case r.MaxPattern < 0 || r.MinPattern < 0:
		return invalid(name, "repetition_detection: max_pattern_size and min_pattern_size must not be negative, got %d and %d.", r.MaxPattern, r.MinPattern)
	case r.MaxPattern > maxPattern:
		return invalid(name, "repetition_detection: max_pattern_size must be at most %d, got %d.", maxPattern, r.MaxPattern)
	case r.MinPattern > r.MaxPattern:
		return invalid(name, "repetition_detection: min_pattern_size must be at most max_pattern_size, got %d and %d.", r.MinPattern, r.MaxPattern)
	case r.MaxPattern > 0 && r.MinCount < 2:
		return invalid(name, "repetition_detection: min_count must be at least 2, got %d.", r.MinCount)
	}
	return nil
}

// repeats detects repetition in the tokens of a reply.
type repeats struct {
	*Repetition
	last []int32 // the newest tokens, a ring of MaxPattern
	n    int     // tokens so far
	run  []int   // run[p]: how many of the newest tokens equal the one p before them
}

// follow returns the detector of one reply; nil: no detection.
func (r *Repetition) follow() *repeats {
	if r == nil || r.MaxPattern == 0 {
		return nil
	}
	return &repeats{Repetition: r, last: make([]int32, r.MaxPattern), run: make([]int, r.MaxPattern+1)}
}

// take adds a token and reports whether the reply now repeats itself.
func (r *repeats) take(token int32) bool {
	if r == nil {
		return false
	}
	found := false
	for p := max(1, r.MinPattern); p <= min(r.MaxPattern, r.n); p++ {
		if r.last[(r.n-p)%r.MaxPattern] != token {
			r.run[p] = 0
			continue
		}
		r.run[p]++
		found = found || r.run[p] >= p*(r.MinCount-1)
	}
	r.last[r.n%r.MaxPattern] = token
	r.n++
	return found
}
