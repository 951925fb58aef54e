package figures

import "slices"

// Turn is a few seconds of decoding one stream on a side that is already loaded.
type Turn struct {
	Side      string  `json:"side"`
	Decode    float64 `json:"decode"`     // tokens per second
	StepBytes float64 `json:"step_bytes"` // bytes that a step reads, for vapp
	Before    float64 `json:"before"`     // the machine's read bandwidth before the turn and after it, in bytes per second
	After     float64 `json:"after"`
}

// limit returns the tokens per second at the bandwidth around a turn; 0: unknown.
func (t Turn) limit(bytes float64) float64 { return ratio((t.Before+t.After)/2, bytes) }

// decodes returns the rates of a side's turns.
func (p Part) decodes(side string) (v []float64) {
	for _, t := range p.Turns {
		if t.Side == side {
			v = append(v, t.Decode)
		}
	}
	return v
}

// limits returns the decode limits of a side's turns.
func (p Part) limits(side string) (v []float64) {
	for _, t := range p.Turns {
		if t.Side == side && t.limit(t.StepBytes) > 0 {
			v = append(v, t.limit(t.StepBytes))
		}
	}
	return v
}

// shares returns the shares that a side's turns reached of their limits.
func (p Part) shares(side string) (v []float64) {
	for _, t := range p.Turns {
		if x := t.limit(t.StepBytes); t.Side == side && x > 0 {
			v = append(v, t.Decode/x)
		}
	}
	return v
}

// RatioTo returns a side's decode rate as a multiple of a peer's, for each two consecutive
// turns of both in either order. Without turns of both, it is the ratio of the runs' medians.
func (p Part) RatioTo(side, peer string) Stat {
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

// ratioToBest returns RatioTo of the peer that decodes fastest relative to the side.
func (p Part) ratioToBest(side string, peers ...string) (least Stat) {
	for _, peer := range peers {
		if x := p.RatioTo(side, peer); x.Runs > 0 && (least.Runs == 0 || x.Median < least.Median) {
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
