// Package workload makes what a benchmark asks: prompts with their lengths, and the
// times at which they are sent. The same seed gives the same workload.
package workload

import (
	"context"
	"fmt"
	"math/rand/v2"
)

// Request is one prompt and what is asked for it.
type Request struct {
	Prompt string
	// Tokens is the prompt's length as the tokenizer counts it, without what the
	// server adds.
	Tokens int
	// Output is how many tokens are asked for.
	Output int
	// IDs are the prompt's tokens where the dataset was made of them.
	IDs []int32
}

// Tokenizer is what the datasets need of one.
type Tokenizer interface {
	// Encode returns a text's ids, without special tokens added.
	Encode(ctx context.Context, text string) ([]int32, error)
	// Decode returns the text of ids.
	Decode(ctx context.Context, ids []int32) (string, error)
	// Vocabulary says which ids prompts may be made of.
	Vocabulary(ctx context.Context) (Vocabulary, error)
}

// Vocabulary is what random prompts are drawn from.
type Vocabulary struct {
	// Size counts all ids, special ones too.
	Size int
	// Allowed are the ids that are no special tokens, ascending.
	Allowed []int32
	// Added is how many special tokens a server adds to a prompt.
	Added int
}

// Maker draws requests. Its methods are the datasets.
type Maker struct {
	// Count is how many requests to make.
	Count int
	// Seed decides lengths, order and tokens.
	Seed int64
	// NoOversample makes fewer requests when the dataset has fewer, rather than repeating it.
	NoOversample bool
	Tokenizer    Tokenizer
}

// Streams of one seed, so that prompts stay the same when arrivals change.
const (
	streamPrompts = 1 + iota
	streamArrivals
)

func generator(seed int64, stream uint64) *rand.Rand {
	return rand.New(rand.NewPCG(uint64(seed), stream))
}

// between draws an integer uniformly from [low, high].
func between(r *rand.Rand, low, high int) int { return low + r.IntN(high-low+1) }

// fill repeats the requests of a dataset from its start until there are as many as asked for.
func (m Maker) fill(of string, have []Request) ([]Request, error) {
	if len(have) == 0 {
		return nil, fmt.Errorf("%s: no prompt of it fits the lengths asked for; give another file or other lengths", of)
	}
	if len(have) > m.Count {
		have = have[:m.Count]
	}
	for i := 0; !m.NoOversample && len(have) < m.Count; i++ {
		have = append(have, have[i])
	}
	return have, nil
}
