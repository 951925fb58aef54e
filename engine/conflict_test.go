//go:build cgo

package engine_test

import (
	"context"
	"errors"
	"reflect"
	"testing"

	"vapp.dev/engine"
	"vapp.dev/engine/grammar"
	"vapp.dev/engine/sample"
	"vapp.dev/engine/tokenizer"
)

// TestConflicts: a request whose constraints forbid every token is refused if that is known at
// once. Otherwise its reply ends with an error that names the constraints.
func TestConflicts(t *testing.T) {
	c, tok := compiler(t)
	e := newToy(t).open(t)
	id := func(text string) int32 { return byteID(t, tok, text) }
	for _, k := range []struct {
		name, regex string
		change      func(*engine.Request)
		want        engine.ConflictError
	}{
		{"allowed tokens", "ab", func(r *engine.Request) { r.Params.AllowedTokenIDs = []int32{id("c")} },
			engine.ConflictError{Grammar: true, Params: []string{"allowed_token_ids"}}},
		{"a word", "ab", func(r *engine.Request) { r.Params.BadWords = [][]int32{{id("a")}} },
			engine.ConflictError{Grammar: true, Params: []string{"bad_words"}}},
		{"no grammar", "", func(r *engine.Request) { r.Params.AllowedTokenIDs, r.Params.MinTokens = []int32{319}, 1 },
			engine.ConflictError{Params: []string{"allowed_token_ids", "min_tokens"}}},
		{"allowed tokens, later", "[abc]x", func(r *engine.Request) { r.Params.AllowedTokenIDs = []int32{id("a"), id("b"), id("c")} },
			engine.ConflictError{Grammar: true, Params: []string{"allowed_token_ids"}, Output: 1}},
		{"words, later", "[ab]c", func(r *engine.Request) { r.Params.BadWords = [][]int32{{id("a"), id("c")}, {id("b"), id("c")}} },
			engine.ConflictError{Grammar: true, Params: []string{"bad_words"}, Output: 1}},
		{"a stop token too early", "[ab]c", func(r *engine.Request) { r.Params.StopTokenIDs, r.Params.MinTokens = []int32{id("c")}, 5 },
			engine.ConflictError{Grammar: true, Params: []string{"min_tokens"}, Output: 1}},
		{"behind a thought", "ab", func(r *engine.Request) {
			r.Preamble = grammar.Preamble{Inside: true, Ends: []string{"!"}}
			r.Params.AllowedTokenIDs = []int32{id("!")}
		}, engine.ConflictError{Grammar: true, Params: []string{"allowed_token_ids"}, Output: 1}},
		{"the end of a thought", "", func(r *engine.Request) {
			r.Thinking = &engine.Thinking{Budget: 2, Inside: true, Open: engine.Marker{ID: -1}, Close: []int32{id("!")}, Bytes: tok.TokenBytes}
			r.Params.AllowedTokenIDs = []int32{id("a")}
		}, engine.ConflictError{Thinking: true, Params: []string{"allowed_token_ids"}, Output: 2}},
	} {
		r := request(1)
		r.N, r.Params = 1, sample.Default()
		r.Params.EOS, r.Params.MaxTokens, r.Params.Seed, r.Params.HasSeed = []int32{319}, 20, 5, true
		if k.regex != "" {
			var err error
			if r.Grammar, err = c.Compile(context.Background(), grammar.Spec{Kind: tokenizer.GrammarRegex, Source: k.regex}); err != nil {
				t.Fatal(err)
			}
		}
		k.change(&r)
		streams, err := e.Submit(context.Background(), r)
		if (err != nil) != (k.want.Output == 0) {
			t.Errorf("%s: refused at once: %v", k.name, err)
		}
		if err == nil {
			ids, last := collect(t, streams[0])
			if len(ids) != k.want.Output || last.Finish != engine.FinishError {
				t.Errorf("%s: %v, then %v", k.name, ids, last.Finish)
			}
			err = last.Err
		}
		var got *engine.ConflictError
		if !errors.As(err, &got) || !reflect.DeepEqual(*got, k.want) {
			t.Errorf("%s: got %+v, want %+v", k.name, err, k.want)
		}
	}
	if err := e.Check(context.Background()); err != nil {
		t.Error(err)
	}
}
