package workload

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
)

// Turn is a prompt of a file of conversations, with its reference answer.
type Turn struct{ Prompt, Answer string }

// Conversations parses ShareGPT's format: a JSON array of objects with conversations[], whose first
// two turns are prompt and reference answer. Entries with fewer turns are dropped. Errors name the
// entry.
func Conversations(r io.Reader) ([]Turn, error) {
	d := json.NewDecoder(r)
	if first, err := d.Token(); err != nil || first != json.Delim('[') {
		return nil, fmt.Errorf("not ShareGPT's format: a JSON array of objects with conversations[] is expected%s", cause(err))
	}
	var out []Turn
	for n := 1; d.More(); n++ {
		var entry struct {
			Conversations []struct{ Value string }
		}
		if err := d.Decode(&entry); err != nil {
			return nil, fmt.Errorf("entry %d: %w", n, err)
		}
		if c := entry.Conversations; len(c) >= 2 {
			out = append(out, Turn{c[0].Value, c[1].Value})
		}
	}
	if _, err := d.Token(); err != nil {
		return nil, fmt.Errorf("the array does not end: %w", err)
	}
	if len(out) == 0 {
		return nil, errors.New("no entry has two turns in conversations[]")
	}
	return out, nil
}

func cause(err error) string {
	if err == nil {
		return ""
	}
	return ": " + err.Error()
}

// Bounds of the conversations that are used, in tokens.
const (
	leastTokens = 4
	mostPrompt  = 1024
	mostTotal   = 2048
)

// ShareGPT makes requests from conversations, shuffled. It uses prompts of 4 to 1024 tokens whose
// answer has 4 or more and both together at most 2048. The output length is the answer's, or output
// where that is above 0.
func (m Maker) ShareGPT(ctx context.Context, turns []Turn, output int) ([]Request, error) {
	order := generator(m.Seed, streamPrompts).Perm(len(turns))
	var out []Request
	for _, i := range order {
		if len(out) == m.Count {
			break
		}
		prompt, err := m.Tokenizer.Encode(ctx, turns[i].Prompt)
		if err != nil {
			return nil, err
		}
		want := output
		if want <= 0 {
			answer, err := m.Tokenizer.Encode(ctx, turns[i].Answer)
			if err != nil {
				return nil, err
			}
			want = len(answer)
		}
		n := len(prompt)
		if n < leastTokens || n > mostPrompt || output <= 0 && want < leastTokens || n+want > mostTotal {
			continue
		}
		out = append(out, Request{Prompt: turns[i].Prompt, Tokens: n, Output: want, IDs: prompt})
	}
	return m.fill("the ShareGPT file", out)
}
