package engine_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"vapp.dev/engine"
	"vapp.dev/engine/enginetest"
	"vapp.dev/engine/models"
)

// TestDraftModel: greedy and sampled requests get the tokens of plain decoding from an engine with a
// draft model. If the draft is the model itself, every greedy proposal is accepted; with another
// draft fewer are.
func TestDraftModel(t *testing.T) {
	run := func(draft string) (tokens [][]int32, proposed, accepted int) {
		y := newToy(t)
		if y.opts.PrefixCaching, y.opts.Overlap = true, false; draft != "" {
			y.build, y.opts.Drafts, y.draft = models.Build{Draft: 3, Verify: 3}, 3, y.dir
			if draft == "another" {
				y.draft = filepath.Join(t.TempDir(), "another")
				if err := enginetest.WriteLlama(y.draft, enginetest.Llama{Layers: 2, KVHeads: 2, HeadDim: 32, Seed: 8}); err != nil {
					t.Fatal(err)
				}
			}
		}
		y.hooks.Step = func(s engine.StepStats) { proposed, accepted = proposed+s.DraftTokens, accepted+s.AcceptedTokens }
		e := y.open(t)
		var streams []*engine.Stream
		for i := range 6 {
			q := request(i * 3) // greedy
			if draft != "itself" {
				q = request(i)
			}
			s, err := e.Submit(context.Background(), q)
			if err != nil {
				t.Fatal(err)
			}
			streams = append(streams, s...)
		}
		for _, s := range streams {
			got, _ := collect(t, s)
			tokens = append(tokens, got)
		}
		if err := errors.Join(e.Check(context.Background()), e.Close()); err != nil {
			t.Error(err)
		}
		return tokens, proposed, accepted
	}
	plain, _, _ := run("")
	other, proposed, accepted := run("another")
	if !slices.EqualFunc(plain, other, slices.Equal[[]int32]) || proposed == 0 || accepted == proposed {
		t.Errorf("with a draft model, %d of %d accepted: %v, plain %v", accepted, proposed, other, plain)
	}
	if _, proposed, accepted = run("itself"); proposed == 0 || accepted != proposed {
		t.Errorf("%d of %d proposals of the model itself are accepted", accepted, proposed)
	}
}

// TestDraftVocabulary: a draft model with another vocabulary is refused before it loads.
func TestDraftVocabulary(t *testing.T) {
	y := newToy(t)
	draft := filepath.Join(t.TempDir(), "draft")
	if err := enginetest.WriteLlama(draft, enginetest.Llama{Layers: 1, KVHeads: 1, HeadDim: 32, Seed: 3}); err != nil {
		t.Fatal(err)
	}
	for dir, text := range map[string]string{y.dir: `{"model":{"vocab":{"a":0,"b":1}}}`, draft: `{"model":{"vocab":{"a":0}},"added_tokens":[{"id":2,"content":"b"}]}`} {
		if err := os.WriteFile(filepath.Join(dir, "tokenizer.json"), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	m, err := engine.Inspect(engine.Source{Path: y.dir, Name: "toy", Format: "auto", Build: models.Build{Draft: 2}, Draft: &engine.Source{Path: draft, Name: "small", Format: "auto"}})
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	var wrong *engine.VocabularyError
	if err := m.Loadable(); !errors.As(err, &wrong) || !strings.Contains(err.Error(), `draft model small: its vocabulary differs from that of toy in 1 tokens: "b" is id 1 in the model and id 2 in the draft`) {
		t.Errorf("%v", err)
	}
}
