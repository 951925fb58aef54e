package sample

import "slices"

// Stop is whether and why a new token ends its sequence.
type Stop uint8

// The outcomes.
const (
	GoOn    Stop = iota // the sequence continues
	AtEOS               // the tokenizer's own EOS
	AtToken             // one of StopTokenIDs, or an EOS of the generation config
)

// StopAt returns whether token, the n-th generated one, ends the sequence. Before MinTokens no
// token does. IgnoreEOS turns every EOS off that is not in StopTokenIDs too.
func (p *Params) StopAt(token int32, n int) Stop {
	if n < p.MinTokens {
		return GoOn
	}
	i := slices.Index(p.EOS, token)
	switch {
	case i == 0 && !p.IgnoreEOS:
		return AtEOS
	case slices.Contains(p.StopTokenIDs, token), i > 0 && !p.IgnoreEOS:
		return AtToken
	}
	return GoOn
}

// End returns the EOS that is appended when a grammar is complete: the tokenizer's own if it has
// one, else the first of the generation config, else −1.
func (p *Params) End() int32 {
	for _, id := range p.EOS {
		if id >= 0 {
			return id
		}
	}
	return -1
}

// ChoiceSeed returns the seed of a request's choice: the request's own for the first choice, and
// seeds derived from it by SplitMix64 for the others.
func ChoiceSeed(seed uint64, choice int) uint64 {
	if choice == 0 {
		return seed
	}
	z := seed + 0xd1b54a32d192ed03*uint64(choice)
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	return z ^ z>>31
}
