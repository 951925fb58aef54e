package tokenizer

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"time"
)

// What a trial may take: the compiler's stack is reserved whole, and counts.
const (
	trialMemory = 768 << 20
	trialTime   = 5 * time.Second // unless the sandbox says otherwise
)

// TryGrammar compiles a grammar in a child process and throws it away: what takes too
// long or needs too much memory harms nobody, and ends when ctx does. specials are the special
// tokens that it may name. The error is an *Error
// of KindGrammar that says why it is refused, another *Error where the child did not work,
// or ctx's own.
func TryGrammar(ctx context.Context, s Sandbox, g GrammarSpec, specials []string) error {
	if len(g.Source) > maxGrammar {
		return failure(KindGrammar, 0, "the grammar is over 256 KiB")
	}
	if s.Memory = trialMemory; s.Time <= 0 {
		s.Time = trialTime
	}
	g.Source = tokenIDs.ReplaceAllString(g.Source, "<[256]>")
	_, err := s.run(ctx, sandboxCall{Grammar: &trialCall{g, specials}})
	var e *TemplateError
	if !errors.As(err, &e) {
		return err
	}
	switch e.Kind {
	case KindTime:
		return failure(KindGrammar, 0, fmt.Sprintf("it takes longer than %v to compile; make it smaller", s.Time))
	case KindMemory:
		return failure(KindGrammar, 0, fmt.Sprintf("it needs more than %d MiB to compile; make it smaller", s.Memory>>20))
	}
	return &Error{e.Kind, e.Msg}
}

// trialCall is what the child of a trial is told.
type trialCall struct {
	Spec     GrammarSpec `json:"spec"`
	Specials []string    `json:"specials"`
}

// tokenIDs are tokens that a Lark grammar names by their ids, which the child has not.
var tokenIDs = regexp.MustCompile(`<\[[\^0-9, -]*\]>`)

// try compiles the grammar for a vocabulary of bytes and special tokens.
func (c *trialCall) try() error {
	b, err := byteTokenizer(c.Specials)
	if err != nil {
		return err
	}
	t, err := Load(b, LoadOptions{})
	if err != nil {
		return err
	}
	defer t.Close()
	env, err := NewGrammarEnv(t, GrammarOptions{VocabSize: t.VocabSize(), EOS: []int32{256}})
	if err != nil {
		return err
	}
	defer env.Close()
	m, err := env.Compile(c.Spec)
	if err != nil {
		return err
	}
	defer m.Close()
	return m.Probe(env.MaskWords())
}

// probes are how many tokens a grammar is followed before anything is generated.
const probes = 3

// Probe follows the grammar for a few tokens, whichever comes first, on a copy: some are
// compiled and cannot be followed.
func (m *Matcher) Probe(words int) error {
	c, err := m.Clone()
	if err != nil {
		return err
	}
	defer c.Close()
	mask := make([]uint32, words)
	for range probes {
		if c.Done() {
			return nil
		}
		if err := c.Mask(mask); err != nil {
			return err
		}
		id := int32(-1)
		for i := range int32(32 * words) {
			if mask[i/32]>>(i%32)&1 == 1 {
				id = i
				break
			}
		}
		if id < 0 {
			return failure(KindGrammar, 0, "no text satisfies it")
		}
		if err := c.Advance(id); err != nil {
			return err
		}
	}
	return nil
}

// byteTokenizer is a tokenizer.json of the 256 bytes, an end, and special tokens.
func byteTokenizer(specials []string) ([]byte, error) {
	vocab := map[string]int{}
	var added []any
	for i, name := range append([]string{"<|trial end|>"}, specials...) {
		added = append(added, map[string]any{
			"id": 256 + i, "content": name, "single_word": false, "lstrip": false, "rstrip": false, "normalized": false, "special": true,
		})
		vocab[name] = 256 + i
	}
	next := rune(0x100)
	for b := range 256 {
		c := rune(b)
		// bytes that cannot be printed have letters from U+0100 on, as GPT-2 has it
		if b < '!' || b > '~' && b < 0xa1 || b == 0xad {
			c = next
			next++
		}
		vocab[string(c)] = b
	}
	level := map[string]any{"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": false}
	return json.Marshal(map[string]any{
		"version": "1.0", "truncation": nil, "padding": nil, "normalizer": nil, "post_processor": nil,
		"added_tokens":  added,
		"pre_tokenizer": level, "decoder": level,
		"model": map[string]any{
			"type": "BPE", "dropout": nil, "unk_token": nil, "continuing_subword_prefix": nil, "end_of_word_suffix": nil,
			"fuse_unk": false, "byte_fallback": false, "ignore_merges": false, "vocab": vocab, "merges": []any{},
		},
	})
}
