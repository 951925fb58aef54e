package figures

import "slices"

// Turn is a few seconds of decoding one stream on a side that was loaded before.
type Turn struct {
	Side      string  `json:"side"`
	Decode    float64 `json:"decode"`     // tokens a second
	StepBytes float64 `json:"step_bytes"` // what a step reads, of vapp
	Before    float64 `json:"before"`     // bytes a second that the machine read before it, and after
	After     float64 `json:"after"`
}

// limit is the tokens a second at the bandwidth around a turn; 0: not known.
func (t Turn) limit(bytes float64) float64 { return ratio((t.Before+t.After)/2, bytes) }

// decodes are the rates of a side's turns.
func (p Part) decodes(side string) (v []float64) {
	for _, t := range p.Turns {
		if t.Side == side {
			v = append(v, t.Decode)
		}
	}
	return v
}

// limits are the decode limits around a side's turns.
func (p Part) limits(side string) (v []float64) {
	for _, t := range p.Turns {
		if t.Side == side && t.limit(t.StepBytes) > 0 {
			v = append(v, t.limit(t.StepBytes))
		}
	}
	return v
}

// shares are what a side's turns reached of the limits around them.
func (p Part) shares(side string) (v []float64) {
	for _, t := range p.Turns {
		if x := t.limit(t.StepBytes); t.Side == side && x > 0 {
			v = append(v, t.Decode/x)
		}
	}
	return v
}

// Beside is a side's rate of decoding as a multiple of a peer's, of the turns of the two
// that follow each other, whoever is first; with no turns of both, of the medians of runs.
func (p Part) Beside(side, peer string) Stat {
	var v []float64
	var last Turn
	for _, t := range p.Turns {
		if t.Side != side && t.Side != peer {
			continue
		}
		if last.Side != "" && last.Side != t.Side {
			mine, theirs := t, last
			if t.Side == peer {
				mine, theirs = last, t
			}
			v = append(v, mine.Decode/theirs.Decode)
		}
		last = t
	}
	if len(v) > 0 {
		return stat(v)
	}
	if r := ratio(p.Stat(side, Decode).Median, p.Stat(peer, Decode).Median); r > 0 {
		return Stat{Median: r, Least: r, Most: r, Runs: 1}
	}
	return Stat{}
}

// besideBest is Beside of the peer that decodes fastest beside it.
func (p Part) besideBest(side string, peers ...string) (least Stat) {
	for _, peer := range peers {
		if x := p.Beside(side, peer); x.Runs > 0 && (least.Runs == 0 || x.Median < least.Median) {
			least = x
		}
	}
	return least
}

func stat(v []float64) Stat {
	if len(v) == 0 {
		return Stat{}
	}
	v = slices.Sorted(slices.Values(v))
	return Stat{Median: middle(v), Least: v[0], Most: v[len(v)-1], Runs: len(v)}
}
