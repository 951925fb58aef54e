package workload

import (
	"context"
	"fmt"
)

// Prefix describes prompts that share prefixes; lengths are in tokens.
type Prefix struct {
	Prefix, Suffix, Output int
	// Prefixes is the number of different prefixes.
	Prefixes int
}

// Prefix makes shuffled prompts of random tokens that share one of a few prefixes. They measure a
// prefix cache.
func (m Maker) Prefix(ctx context.Context, o Prefix) ([]Request, error) {
	switch {
	case o.Prefix < 1 || o.Prefix > maxLength || o.Suffix < 1 || o.Suffix > maxLength || o.Output < 1 || o.Output > maxLength:
		return nil, fmt.Errorf("prefix, suffix and output length %d, %d, %d: give 1 to %d tokens each", o.Prefix, o.Suffix, o.Output, maxLength)
	case o.Prefixes < 1 || o.Prefixes > m.Count:
		return nil, fmt.Errorf("%d prefixes for %d prompts: give 1 to as many as there are prompts", o.Prefixes, m.Count)
	}
	v, err := m.vocabulary(ctx)
	if err != nil {
		return nil, err
	}
	r := generator(m.Seed, streamPrompts)
	heads := make([][]int32, o.Prefixes)
	for i := range heads {
		heads[i] = pick(r, v.Allowed, o.Prefix)
	}
	out := make([]Request, m.Count)
	for i := range out {
		out[i].Output = o.Output
		ids := append(append([]int32(nil), heads[i%o.Prefixes]...), pick(r, v.Allowed, o.Suffix)...)
		if err := m.exact(ctx, r, v, ids, &out[i]); err != nil {
			return nil, err
		}
	}
	r.Shuffle(len(out), func(i, j int) { out[i], out[j] = out[j], out[i] })
	return out, nil
}
