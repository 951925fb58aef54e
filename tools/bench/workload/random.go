package workload

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
)

// maxLength bounds a prompt and an answer, in tokens.
const maxLength = 1 << 24

// Random describes random prompts.
type Random struct {
	// Input and Output are lengths in tokens; Input includes the special tokens that the server
	// adds.
	Input, Output int
	// Range r draws each length L from floor(L(1-r)) to ceil(L(1+r)).
	Range float64
	// Prefix is the number of leading tokens that all prompts share, in addition to Input.
	Prefix int
}

func (o Random) check() error {
	switch {
	case o.Input < 1 || o.Input > maxLength:
		return fmt.Errorf("input length %d: give 1 to %d tokens", o.Input, maxLength)
	case o.Output < 1 || o.Output > maxLength:
		return fmt.Errorf("output length %d: give 1 to %d tokens", o.Output, maxLength)
	case o.Prefix < 0 || o.Prefix > maxLength:
		return fmt.Errorf("prefix length %d: give 0 to %d tokens", o.Prefix, maxLength)
	case !(o.Range >= 0 && o.Range < 1):
		return fmt.Errorf("range ratio %v: give one from 0 to below 1", o.Range)
	}
	return nil
}

// span returns the range of lengths around l.
func (o Random) span(l, least int) (low, high int) {
	low = max(int(math.Floor(float64(l)*(1-o.Range))), least)
	return low, max(int(math.Ceil(float64(l)*(1+o.Range))), low)
}

// Random makes prompts of meaningless tokens. Token i of prompt j is allowed[(offset_j + j + i) mod
// n], so that all prompts differ and a prefix cache gives nothing unless o.Prefix is set.
func (m Maker) Random(ctx context.Context, o Random) ([]Request, error) {
	if err := o.check(); err != nil {
		return nil, err
	}
	v, err := m.vocabulary(ctx)
	if err != nil {
		return nil, err
	}
	r := generator(m.Seed, streamPrompts)
	real := max(o.Input-v.Added, 0)
	if real+o.Prefix == 0 {
		return nil, fmt.Errorf("input length %d: the tokenizer adds %d special tokens to each prompt; give more than that", o.Input, v.Added)
	}
	prefix := pick(r, v.Allowed, o.Prefix)
	least := 0
	if o.Prefix == 0 {
		least = 1 // servers refuse an empty prompt
	}
	inLow, inHigh := o.span(real, least)
	outLow, outHigh := o.span(o.Output, 1)
	out := make([]Request, m.Count)
	for j := range out {
		n, offset := between(r, inLow, inHigh), r.IntN(v.Size)
		ids := append([]int32(nil), prefix...)
		for i := range n {
			ids = append(ids, v.Allowed[(offset+j+i)%len(v.Allowed)])
		}
		out[j].Output = between(r, outLow, outHigh)
		if err := m.exact(ctx, r, v, ids, &out[j]); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// Tokens makes prompts of n independently drawn tokens each, without their text.
func (m Maker) Tokens(v Vocabulary, n, output int) []Request {
	r := generator(m.Seed, streamPrompts)
	out := make([]Request, m.Count)
	for i := range out {
		out[i] = Request{Tokens: n, Output: output, IDs: pick(r, v.Allowed, n)}
	}
	return out
}

func (m Maker) vocabulary(ctx context.Context) (Vocabulary, error) {
	v, err := m.Tokenizer.Vocabulary(ctx)
	if err == nil && len(v.Allowed) == 0 {
		err = fmt.Errorf("tokenizer: all of its %d tokens are special ones; no prompt can be made of them", v.Size)
	}
	return v, err
}

// pick draws n tokens independently.
func pick(r *rand.Rand, allowed []int32, n int) []int32 {
	out := make([]int32, n)
	for i := range out {
		out[i] = allowed[r.IntN(len(allowed))]
	}
	return out
}

// rounds bounds the corrections of a prompt; few tokenizers need a third one.
const rounds = 10

// exact sets the prompt's text so that it encodes to about as many tokens as ids has. The text of
// random tokens seldom encodes to the same tokens, so it is decoded, encoded, and cut or extended
// until the count is right.
func (m Maker) exact(ctx context.Context, r *rand.Rand, v Vocabulary, ids []int32, to *Request) error {
	want := len(ids)
	for round := 0; ; round++ {
		text, err := m.Tokenizer.Decode(ctx, ids)
		if err != nil {
			return err
		}
		ids, err = m.Tokenizer.Encode(ctx, text)
		if err != nil {
			return err
		}
		if len(ids) == want || round == rounds {
			to.Prompt, to.Tokens, to.IDs = text, len(ids), ids
			return nil
		}
		if len(ids) > want {
			ids = ids[:want]
		} else {
			ids = append(ids, pick(r, v.Allowed, want-len(ids))...)
		}
	}
}
