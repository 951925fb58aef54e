package engine_test

import (
	"errors"
	"fmt"
	"path/filepath"
	"testing"

	"vapp.dev/engine"
	"vapp.dev/engine/backend"
	"vapp.dev/engine/backend/ref"
	"vapp.dev/engine/enginetest"
	"vapp.dev/engine/models"
	"vapp.dev/kernels"
)

// TestSameWeights: SameWeights predicts whether Open takes the weights of another engine, and says what differs.
func TestSameWeights(t *testing.T) { sameWeights(t, ref.Opener{}, backend.Settings{}, nil) }

// sameWeights compares SameWeights with Open on a backend; more are changes of its settings.
func sameWeights(t *testing.T, on backend.Opener, s backend.Settings, more map[string]func(*toy)) {
	cases := map[string]func(*toy){
		"":                                  func(y *toy) { y.slabs, y.opts.MaxNumSeqs, y.opts.MaxModelLen, y.opts.PrefixCaching = 40, 3, 64, false },
		"the weights: bf16 in place of f32": func(y *toy) { y.build.Dtype = kernels.BF16 },
		"LoRA slots: 2 of rank 8 in place of none": func(y *toy) { y.build.LoRA = models.LoRA{Slots: 2, Rank: 8} },
		"the number of weights: 40 in place of 28": func(y *toy) { y.dir = writeToy(t, 6) },
		"the model's files have changed":           func(y *toy) { y.dir = writeToy(t, 4) },
		"the draft model: draft in place of none": func(y *toy) {
			y.draft, y.build = writeToy(t, 2), models.Build{Draft: 2, Verify: 2}
			y.opts.Drafts, y.opts.Overlap = 2, false
		},
	}
	for want, change := range more {
		cases[want] = change
	}
	first := newToy(t)
	first.on, first.opts.Backend = on, s
	a := first.open(t)
	held := weightsOf(t, a)
	info, _ := a.WeightsInfo()
	old := first.planned(t, first.model, info.Source)
	for want, change := range cases {
		t.Run(want, func(t *testing.T) {
			y := *first
			y.weights = nil
			change(&y)
			m := y.inspect(t)
			defer m.Close()
			files, err := m.Fingerprint()
			if err != nil {
				t.Fatal(err)
			}
			next := y.planned(t, m, files)
			err = engine.SameWeights(old, next)
			if got := fmt.Sprint(err); got != want && !(want == "" && err == nil) {
				t.Errorf("%q, want %q", got, want)
			}
			opened := y.reopen(t, held)
			var differ *engine.DifferentWeightsError
			if (err == nil) != (opened == nil) || err != nil && (!errors.As(err, &differ) || differ.Err == nil) {
				t.Errorf("SameWeights: %v, Open: %v", err, opened)
			}
		})
	}
}

// planned returns the weights of an engine with y's options.
func (y *toy) planned(t *testing.T, m *engine.Model, files [32]byte) engine.PlannedWeights {
	t.Helper()
	return engine.Config{Options: y.opts, Model: m, Opener: y.opener(), Facts: y.facts(t), Account: y.account(t, m)}.PlannedWeights(files)
}

// writeToy writes a model of that many layers whose numbers are other ones.
func writeToy(t *testing.T, layers int) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "toy")
	if err := enginetest.WriteLlama(dir, enginetest.Llama{Layers: layers, KVHeads: 4, HeadDim: 64, Seed: 8}); err != nil {
		t.Fatal(err)
	}
	return dir
}

// TestOneAtATime: slots of adapters serve one engine at a time.
func TestOneAtATime(t *testing.T) {
	y := newToy(t)
	for slots, want := range []bool{false, true} {
		y.build.LoRA = models.LoRA{Slots: slots, Rank: 8 * slots}
		m := y.inspect(t)
		w := y.planned(t, m, [32]byte{})
		if w.OneAtATime() != want || engine.SameWeights(w, w) != nil {
			t.Errorf("%d slots: %v, %v", slots, w.OneAtATime(), engine.SameWeights(w, w))
		}
		m.Close()
	}
}
