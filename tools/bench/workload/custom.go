package workload

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
)

// Line is a prompt of a JSONL file.
type Line struct {
	Prompt string
	// Output is the requested output length, 0 where the line has none.
	Output int
}

// maxLine bounds a line of a JSONL file, in bytes.
const maxLine = 64 << 20

// Lines parses a JSONL file of {"prompt": …, "output_tokens": …}. output_tokens is optional, other
// keys are ignored. Errors name the line.
func Lines(r io.Reader) ([]Line, error) {
	s := bufio.NewScanner(r)
	s.Buffer(nil, maxLine)
	var out []Line
	n := 0
	for s.Scan() {
		n++
		if len(bytes.TrimSpace(s.Bytes())) == 0 {
			continue
		}
		var line struct {
			Prompt *string
			Output *int `json:"output_tokens"`
		}
		if err := json.Unmarshal(s.Bytes(), &line); err != nil {
			return nil, fmt.Errorf("line %d: %w; each line is an object such as {\"prompt\": \"…\"}", n, err)
		}
		if line.Prompt == nil || *line.Prompt == "" {
			return nil, fmt.Errorf("line %d: no prompt; each line is an object such as {\"prompt\": \"…\"}", n)
		}
		l := Line{Prompt: *line.Prompt}
		if o := line.Output; o != nil {
			if *o < 1 || *o > maxLength {
				return nil, fmt.Errorf("line %d: output_tokens %d: give 1 to %d", n, *o, maxLength)
			}
			l.Output = *o
		}
		out = append(out, l)
	}
	if err := s.Err(); err != nil {
		return nil, fmt.Errorf("line %d: %w", n+1, err)
	}
	if len(out) == 0 {
		return nil, errors.New("no line has a prompt")
	}
	return out, nil
}

// Custom makes requests from the lines of a file, shuffled unless inOrder is set. The output length
// of all requests is force if that is above 0; else the line's own, or otherwise if it has none.
func (m Maker) Custom(ctx context.Context, lines []Line, force, otherwise int, inOrder bool) ([]Request, error) {
	order := generator(m.Seed, streamPrompts).Perm(len(lines))
	var out []Request
	for k, i := range order {
		if len(out) == m.Count {
			break
		}
		if inOrder {
			i = k
		}
		ids, err := m.Tokenizer.Encode(ctx, lines[i].Prompt)
		if err != nil {
			return nil, err
		}
		q := Request{Prompt: lines[i].Prompt, Tokens: len(ids), Output: lines[i].Output, IDs: ids}
		if q.Output == 0 {
			q.Output = otherwise
		}
		if force > 0 {
			q.Output = force
		}
		out = append(out, q)
	}
	return m.fill("the file of prompts", out)
}
