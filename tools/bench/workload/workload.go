// Package workload makes the requests of a benchmark: prompts with their lengths, and send times.
// The same seed gives the same workload. It must not read the clock or send anything. Start reading
// at Maker.
package workload

import (
	"context"
	"fmt"
	"math/rand/v2"
)

// Request is one prompt with its output length.
type Request struct {
	Prompt string
	// Tokens is the prompt's length by the tokenizer, without tokens that the server adds.
	Tokens int
	// Output is the number of tokens to generate.
	Output int
	// IDs are the prompt's tokens where the dataset is made of tokens.
	IDs []int32
	// Images are sent after the prompt.
	Images []Image
}

// Tokenizer has the methods that datasets need.
type Tokenizer interface {
	// Encode returns a text's ids, without special tokens added.
	Encode(ctx context.Context, text string) ([]int32, error)
	// Decode returns the text of ids.
	Decode(ctx context.Context, ids []int32) (string, error)
	// Vocabulary returns the ids that prompts may have.
	Vocabulary(ctx context.Context) (Vocabulary, error)
}

// Vocabulary lists the ids for random prompts.
type Vocabulary struct {
	// Size is the number of all ids, including special ones.
	Size int
	// Allowed are the ids that are not special tokens, ascending.
	Allowed []int32
	// Added is the number of special tokens that a server adds to a prompt.
	Added int
}

// Maker makes requests; it has a method for each dataset.
type Maker struct {
	// Count is the number of requests to make.
	Count int
	// Seed determines lengths, order and tokens.
	Seed int64
	// NoOversample makes fewer requests when the dataset is smaller than Count; otherwise it is
	// repeated.
	NoOversample bool
	Tokenizer    Tokenizer
}

// Random streams of one seed; with separate streams, prompts do not depend on arrivals.
const (
	streamPrompts = 1 + iota
	streamArrivals
	streamImages
)

func generator(seed int64, stream uint64) *rand.Rand {
	return rand.New(rand.NewPCG(uint64(seed), stream))
}

// between draws an integer uniformly from [low, high].
func between(r *rand.Rand, low, high int) int { return low + r.IntN(high-low+1) }

// fill repeats the requests of a dataset from its start until there are Count.
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
