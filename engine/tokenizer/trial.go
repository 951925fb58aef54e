package tokenizer

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
)

// TryGrammar compiles a grammar in a child process and discards the result, to find grammars that
// take too long or too much memory; it stops when ctx ends. specials are the special tokens that
// the grammar may name; cost estimates the work, in bytes of source. When a slot is free TryGrammar
// calls unneeded and skips the compilation if that is true. bytes is the memory that the
// compilation took. The slot stays in use until leave is called; leave is nil with an error. The
// error is an *Error of KindGrammar if the grammar is refused, of KindBusy or KindUnavailable if no
// child could run, of another kind if the child failed, or ctx's own error.
func TryGrammar(ctx context.Context, s Sandbox, g GrammarSpec, specials []string, cost int, unneeded func() bool) (leave func(), bytes int64, err error) {
	if len(g.Source) > maxGrammar {
		return nil, 0, failure(KindGrammar, 0, "the grammar is over 256 KiB")
	}
	g.Source = tokenIDs.ReplaceAllString(g.Source, "<[256]>")
	t, err := s.acquire(ctx, cost)
	if err == nil {
		var r sandboxReply
		if r, err = t.do(ctx, sandboxCall{Grammar: &trialCall{g, specials}}, unneeded); err == nil {
			return t.release, r.Bytes, nil
		}
		t.release()
	}
	return nil, 0, t.refusal(err)
}

// refusal converts an error of a trial to an error of a grammar.
func (t *childSlot) refusal(err error) error {
	var e *TemplateError
	if !errors.As(err, &e) {
		return err
	}
	switch e.Kind {
	case KindTime:
		return failure(KindGrammar, 0, fmt.Sprintf("it takes longer than %v to compile; make it smaller", t.of.Time))
	case KindMemory:
		return failure(KindGrammar, 0, fmt.Sprintf("it needs more than %d MiB to compile; make it smaller", largeChild.memory>>20))
	}
	return &Error{e.Kind, e.Msg}
}

// trialCall asks the child to compile a grammar.
type trialCall struct {
	Spec     GrammarSpec `json:"spec"`
	Specials []string    `json:"specials"`
}

// tokenIDs matches tokens that a Lark grammar names by id; the child does not have these ids.
var tokenIDs = regexp.MustCompile(`<\[[\^0-9, -]*\]>`)

// try compiles the grammar for a vocabulary of bytes and special tokens, and returns the memory
// used, or limit if the system does not report it.
func (c *trialCall) try(limit int64) (bytes int64, err error) {
	b, err := byteTokenizer(c.Specials)
	if err != nil {
		return 0, err
	}
	t, err := Load(b, LoadOptions{})
	if err != nil {
		return 0, err
	}
	defer t.Close()
	env, err := NewGrammarEnv(t, GrammarOptions{VocabSize: t.VocabSize(), EOS: []int32{256}})
	if err != nil {
		return 0, err
	}
	defer env.Close()
	before, known := privateMemory()
	m, err := env.Compile(c.Spec)
	if err != nil {
		return 0, err
	}
	defer m.Close()
	if err := m.Probe(env.MaskWords()); err != nil {
		return 0, err
	}
	after, _ := privateMemory()
	if !known {
		return limit, nil
	}
	return min(limit, max(after.now, after.most)-before.now), nil
}

// probes is the number of tokens that Probe follows.
const probes = 3

// Probe follows the grammar on a copy for a few tokens, always the first allowed one: some grammars
// compile but cannot be followed.
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

// byteTokenizer returns a tokenizer.json of the 256 bytes, an end token and special tokens.
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
		// unprintable bytes map to letters from U+0100 on, as in GPT-2
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
