package workload

import (
	"context"
	_ "embed"
	"fmt"
	"math"
	"strings"
)

//go:embed sonnet.txt
var sonnetText string

// Sonnet describes prompts of verse; lengths are in tokens, Input includes Prefix.
type Sonnet struct{ Input, Output, Prefix int }

const sonnetAsk = "Pick as many lines as you can from these lines of verse:\n"

// Sonnet makes prompts of lines of verse. The first lines, up to o.Prefix tokens, are the same in
// all prompts; the others are drawn at random. text replaces the built-in verse unless it is empty.
func (m Maker) Sonnet(ctx context.Context, o Sonnet, text string) ([]Request, error) {
	if o.Input < 1 || o.Input > maxLength || o.Output < 1 || o.Output > maxLength || o.Prefix < 0 || o.Prefix > o.Input {
		return nil, fmt.Errorf("sonnet lengths: input %d, output %d, prefix %d: give 1 to %d tokens, and a prefix within the input", o.Input, o.Output, o.Prefix, maxLength)
	}
	if text == "" {
		text = sonnetText
	}
	var lines []string
	for l := range strings.Lines(text) {
		if l = strings.TrimSpace(l); l != "" {
			lines = append(lines, l+"\n")
		}
	}
	if len(lines) == 0 {
		return nil, fmt.Errorf("the file of verse has no lines")
	}
	head, err := m.Tokenizer.Encode(ctx, sonnetAsk)
	if err != nil {
		return nil, err
	}
	all, err := m.Tokenizer.Encode(ctx, strings.Join(lines, ""))
	if err != nil {
		return nil, err
	}
	if len(head) >= o.Input {
		return nil, fmt.Errorf("sonnet input length %d: the question alone has %d tokens; give more", o.Input, len(head))
	}
	each := max(float64(len(all))/float64(len(lines)), 1)
	count := func(tokens int) int { return max(int(math.Round(float64(tokens-len(head))/each)), 0) }
	return m.verses(ctx, o, lines, count(o.Prefix), count(o.Input))
}

// verses draws lines until each prompt has total lines, and drops the last lines of a prompt that
// is too long.
func (m Maker) verses(ctx context.Context, o Sonnet, lines []string, shared, total int) ([]Request, error) {
	r := generator(m.Seed, streamPrompts)
	out := make([]Request, m.Count)
	for i := range out {
		var chosen []string
		for k := range max(total, 1) {
			if k < shared {
				chosen = append(chosen, lines[k%len(lines)])
			} else {
				chosen = append(chosen, lines[r.IntN(len(lines))])
			}
		}
		for {
			q := Request{Prompt: sonnetAsk + strings.Join(chosen, ""), Output: o.Output}
			ids, err := m.Tokenizer.Encode(ctx, q.Prompt)
			if err != nil {
				return nil, err
			}
			q.Tokens, q.IDs = len(ids), ids
			if out[i] = q; q.Tokens <= o.Input {
				break
			}
			if len(chosen) == 1 {
				return nil, fmt.Errorf("sonnet input length %d: a prompt of one line has %d tokens; give more", o.Input, q.Tokens)
			}
			chosen = chosen[:len(chosen)-1]
		}
	}
	return out, nil
}
