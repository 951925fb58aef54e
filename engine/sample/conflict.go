package sample

// MaskName is Conflict's name for the mask of a grammar.
const MaskName = "mask"

// Conflict returns the constraints that together forbid every token at a position: names of
// parameters, and MaskName for mask, the tokens that a grammar allows (nil: all). The list is
// minimal: without any one of them some token would be allowed. It is nil if a token is allowed.
func (p *Params) Conflict(at At, mask []uint32, vocab int) []string {
	var list []constraint
	if mask != nil {
		list = append(list, constraint{MaskName, mask})
	}
	words := (vocab + 31) / 32
	if p.AllowedTokenIDs != nil {
		w := make([]uint32, words)
		p.allow(w)
		list = append(list, constraint{"allowed_token_ids", w})
	}
	if len(p.BadWords) > 0 {
		w := every(words)
		for _, b := range p.BadWords {
			if endsWith(at.Output, b[:len(b)-1]) {
				remove(w, b[len(b)-1])
			}
		}
		list = append(list, constraint{"bad_words", w})
	}
	if at.Position-at.Prompt < p.MinTokens {
		w := every(words)
		remove(w, p.EOS...)
		remove(w, p.StopTokenIDs...)
		list = append(list, constraint{"min_tokens", w})
	}
	if leaves(list, vocab) {
		return nil
	}
	for i := len(list) - 1; i >= 0; i-- {
		others := append(append([]constraint(nil), list[:i]...), list[i+1:]...)
		if !leaves(others, vocab) {
			list = others
		}
	}
	var names []string
	for _, c := range list {
		names = append(names, c.name)
	}
	return names
}

// Jumps reports whether tokens that a grammar forces may be appended without sampling: their
// logprobs are not requested, and no other constraint could forbid them.
func (p *Params) Jumps() bool {
	stopForbidden := p.MinTokens > 0 && len(p.StopTokenIDs) > 0
	return p.Logprobs < 0 && p.AllowedTokenIDs == nil && len(p.BadWords) == 0 && !stopForbidden
}

// constraint is a named set of allowed tokens, one bit for each id.
type constraint struct {
	name  string
	words []uint32
}

// leaves reports whether some token below vocab is allowed by every constraint of list.
func leaves(list []constraint, vocab int) bool {
	for i := 0; 32*i < vocab; i++ {
		w := ^uint32(0)
		if n := vocab - 32*i; n < 32 {
			w = 1<<n - 1
		}
		for _, c := range list {
			w &= c.words[i]
		}
		if w != 0 {
			return true
		}
	}
	return false
}

// every returns a set of all tokens.
func every(words int) []uint32 {
	out := make([]uint32, words)
	for i := range out {
		out[i] = ^uint32(0)
	}
	return out
}

func remove(words []uint32, ids ...int32) {
	for _, id := range ids {
		if id >= 0 && int(id/32) < len(words) {
			words[id/32] &^= 1 << (id % 32)
		}
	}
}
