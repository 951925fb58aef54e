package models

import (
	"errors"
	"math/rand/v2"
	"strings"
	"testing"

	"vapp.dev/engine/backend"
	"vapp.dev/engine/checkpoint"
	"vapp.dev/kernels"
)

// both reads rows from two checkpoints, as the engine does.
type both struct{ target, draft *checkpoint.Checkpoint }

func (b both) ReadRows(name string, row0, rows int, dst []byte) error {
	if own, ok := DraftTensor(name); ok {
		return b.draft.ReadRows(own, row0, rows, dst)
	}
	return b.target.ReadRows(name, row0, rows, dst)
}

// openTestdata opens a checkpoint of testdata.
func openTestdata(t testing.TB, name string) *checkpoint.Checkpoint {
	t.Helper()
	ck, err := checkpoint.Open("testdata/" + name)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ck.Close() })
	return ck
}

// like returns a checkpoint of random weights with the config of another.
func like(t testing.TB, ck *checkpoint.Checkpoint, seed uint64) *checkpoint.Checkpoint {
	t.Helper()
	tensors, err := Tensors(ck.Config())
	if err != nil {
		t.Fatal(err)
	}
	out, err := checkpoint.Dummy(ck.Config(), tensors, seed)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func randomPrompts(vocab int, lengths ...int) [][]int32 {
	r := rand.New(rand.NewPCG(4, 4))
	out := make([][]int32, len(lengths))
	for i, n := range lengths {
		for range n {
			out[i] = append(out[i], int32(r.IntN(vocab)))
		}
	}
	return out
}

// TestDraftModel checks that sequences of a batch get the tokens and logprobs of plain decoding,
// greedy or sampled, for any proposals. A draft that is the model itself always proposes the
// model's next greedy token.
func TestDraftModel(t *testing.T) {
	if testing.Short() {
		t.Skip("not run: -short leaves it out, make test runs it")
	}
	const n, of = 24, 3
	for _, c := range []struct{ target, draft string }{
		{"tiny-llama3-tied", "tiny-llama3-tied"}, {"tiny-llama3-tied", ""}, {"tiny-qwen3", "tiny-qwen3"}, {"tiny-qwen2", ""}, {"tiny-mha-f16", "tiny-mha-f16"},
		{"tiny-gpt-oss", "another"}, {"tiny-qwen35", "another"},
	} {
		target := openTestdata(t, c.target)
		draft := target
		switch c.draft {
		case "":
			draft = like(t, target, 7)
		case "another": // of another family
			cfg := openTestdata(t, "tiny-qwen2").Config()
			cfg.VocabSize = target.Config().VocabSize
			tensors, err := Tensors(cfg)
			if err != nil {
				t.Fatal(err)
			}
			if draft, err = checkpoint.Dummy(cfg, tensors, 3); err != nil {
				t.Fatal(err)
			}
		}
		plain, err := New(target, Build{})
		if err != nil {
			t.Fatal(err)
		}
		m, err := NewWithDraft(target, draft, Build{Draft: of})
		if err != nil {
			t.Fatal(err)
		}
		prompts := randomPrompts(target.Config().VocabSize, 5, 33, 16)
		for _, w := range ways(t) {
			t.Run(c.target+"/"+c.draft+"/"+w.name, func(t *testing.T) {
				capacity := size{seqs: 3, tokens: 48, positions: 33 + n + 2*of + 1}
				one := drive(t, w, plain, target, kernels.F32, capacity)
				capacity.verify, capacity.drafts = of, of
				two := drive(t, w, m, both{target, draft}, kernels.F32, capacity)
				for _, draw := range []backend.SampleRow{{}, {Temperature: 0.8, Seed: 11, Repetition: 1.2}} {
					want := one.generate(prompts, n, 16, draw, func(int, int, []int32) []int32 { return nil })
					got := two.generate(prompts, n, 16, draw, nil)
					got.same(t, want, n)
					rate := float64(got.held) / float64(got.proposed)
					t.Logf("temperature %g: %d of %d proposals held, %d steps for %d", draw.Temperature, got.held, got.proposed, got.steps, want.steps)
					if itself := draft == target && draw.Temperature == 0; itself != (rate == 1) {
						t.Errorf("%d of %d proposals held", got.held, got.proposed)
					}
				}
			})
		}
	}
}

// TestDraftModelRefusals checks the errors for pairs that do not fit.
func TestDraftModelRefusals(t *testing.T) {
	llama, oss := openTestdata(t, "tiny-llama3-tied"), openTestdata(t, "tiny-gpt-oss")
	cfg := llama.Config()
	cfg.VocabSize++
	tensors, err := Tensors(cfg)
	if err != nil {
		t.Fatal(err)
	}
	wider, err := checkpoint.Dummy(cfg, tensors, 1)
	if err != nil {
		t.Fatal(err)
	}
	for want, c := range map[string]struct {
		draft *checkpoint.Checkpoint
		b     Build
	}{
		"draft model of architecture GptOssForCausalLM": {oss, Build{Draft: 2}},
		"must be tokens of the model":                   {wider, Build{Draft: 2}},
		"proposes 0 tokens":                             {llama, Build{}},
		"proposes 33 tokens":                            {llama, Build{Draft: 33}},
		"pipeline parallel size 2 with a draft model":   {llama, Build{Draft: 2, Pipe: backend.Shard{World: 2}}},
		"with a vision tower":                           {llama, Build{Draft: 2, Vision: true}},
	} {
		var refused *UnsupportedError
		if _, err := NewWithDraft(llama, c.draft, c.b); !errors.As(err, &refused) || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
}

// TestDraftModelAccount checks that both models' weights and pages are listed under their own
// names.
func TestDraftModelAccount(t *testing.T) {
	llama := openTestdata(t, "tiny-llama3-tied")
	alone, err := New(llama, Build{})
	if err != nil {
		t.Fatal(err)
	}
	m, err := NewWithDraft(llama, llama, Build{Draft: 2})
	if err != nil {
		t.Fatal(err)
	}
	own := len(alone.Weights())
	for i, w := range m.Weights() {
		mine := i < own
		if strings.HasPrefix(w.Name, "draft.") == mine || (w.Group == "draft") == mine {
			t.Errorf("weight %d is %s of %s", i, w.Name, w.Group)
		}
		for _, p := range w.Parts {
			if _, ok := DraftTensor(p.Tensor); ok == mine && p.Tensor != "" {
				t.Errorf("weight %s reads %s", w.Name, p.Tensor)
			}
		}
	}
	classes := m.Classes(16, kernels.F16)
	if n := len(classes); len(m.Weights()) != 2*own || n != 2 || classes[1].Name != "draft" || classes[1].Plane || classes[1].Layers != classes[0].Layers {
		t.Errorf("%d weights, classes %+v", len(m.Weights()), classes)
	}
}
