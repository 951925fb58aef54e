package engine_test

import (
	"encoding/json"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"vapp.dev/engine"
	"vapp.dev/engine/backend"
	"vapp.dev/engine/backend/ref"
	"vapp.dev/engine/enginetest"
	"vapp.dev/engine/models"
	"vapp.dev/engine/ranks"
	"vapp.dev/kernels"
)

// headSeeing is the text model that has a head of its own, with a tower.
var headSeeing = seeing{name: "tiny-qwen35-mtp", side: 2, square: true, cols: 3 * 2 * 4 * 4, seed: 2, vocab: 64, become: func(t testing.TB, config []byte, list []enginetest.Tensor) ([]byte, []enginetest.Tensor) {
	t.Helper()
	var text map[string]any
	if err := json.Unmarshal(config, &text); err != nil {
		t.Fatal(err)
	}
	text["rope_parameters"].(map[string]any)["mrope_interleaved"] = true
	config, err := json.Marshal(map[string]any{
		"architectures": []string{"Qwen3_5ForConditionalGeneration"}, "model_type": "qwen3_5", "tie_word_embeddings": false, "text_config": text,
		"vision_config": map[string]any{
			"model_type": "qwen3_5", "depth": 1, "hidden_size": 32, "intermediate_size": 48, "num_heads": 2, "in_channels": 3, "patch_size": 4, "spatial_merge_size": 2, "temporal_patch_size": 2,
			"out_hidden_size": text["hidden_size"], "num_position_embeddings": 16, "hidden_act": "gelu_pytorch_tanh", "deepstack_visual_indexes": []int{},
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	var out []enginetest.Tensor
	for _, x := range list {
		switch {
		case strings.HasPrefix(x.Name, "input."), strings.HasPrefix(x.Name, "output."): // a recorded run
			continue
		case strings.HasPrefix(x.Name, "model."):
			x.Name = "model.language_model." + strings.TrimPrefix(x.Name, "model.")
		}
		out = append(out, x)
	}
	return config, out
}}

// ownHeadAxes are ways to run a model with a vision tower and a head of its own. The head's weights are random, so only some
// proposals are accepted.
var ownHeadAxes = []imageAxis{
	{name: "plain, in a batch"},
	{name: "three", change: head(3), took: proposes},
	{name: "two, preempted, chunks of 16", took: func(r *imageRun) bool { return proposes(r) && r.stats.Preemptions > 0 }, change: func(y *toy) {
		head(2)(y)
		y.slabs, y.fat, y.opts.MaxNumBatchedTokens = least, true, 24
	}},
	{name: "four, prefixes, twice", rounds: 2, took: func(r *imageRun) bool { return proposes(r) && r.hits > 0 }, change: func(y *toy) {
		head(4)(y)
		y.opts.PrefixCaching = true
	}},
}

func proposes(r *imageRun) bool { return r.accepted > 0 }

// TestImagesMTP: a model's own head changes no token of requests with images, on one rank and on two.
func TestImagesMTP(t *testing.T) {
	if testing.Short() {
		t.Skip("not run: -short leaves it out, make test runs it")
	}
	imagesMTP(t, ref.Opener{}, backend.Settings{}, ownHeadAxes)
}

func imagesMTP(t *testing.T, on backend.Opener, s backend.Settings, axes []imageAxis) {
	f := headSeeing
	dir := filepath.Join(t.TempDir(), f.name)
	f.write(t, dir)
	var plain [][]int32
	for _, a := range axes {
		t.Run(a.name, func(t *testing.T) {
			y := toy{dir: dir, on: on, slabs: 16, build: models.Build{Vision: true}, opts: engine.Options{
				MaxModelLen: 160, MaxNumSeqs: 16, MaxNumBatchedTokens: 2048, BlockSize: 16, KVFormat: kernels.F32, ChunkedPrefill: true,
				Backend: s, Items: engine.ItemOptions{Patches: 16 * f.side * f.side},
			}}
			if a.change != nil {
				a.change(&y)
			}
			r := f.run(t, &y, a.alone, a.rounds)
			t.Logf("%d proposals accepted", r.accepted)
			if a.took != nil && !a.took(r) {
				t.Errorf("%+v: this tests too little", *r)
			}
			if plain == nil {
				plain = r.tokens
			}
			for i := range plain {
				if !slices.Equal(r.tokens[i], plain[i]) {
					t.Errorf("request %d: %v, plain %v", i, r.tokens[i], plain[i])
				}
			}
		})
	}
}

// TestImagesMTPRanks: on tensor parallel ranks and in stages the head sees images too, each rank of its stage with an
// encoder cache of its own. Stages give the tokens and the accepted proposals of one rank.
func TestImagesMTPRanks(t *testing.T) {
	if testing.Short() {
		t.Skip("not run: -short leaves it out, make test runs it")
	}
	on := func(p ranks.Places, change func(*toy)) func(*toy) {
		return func(y *toy) { y.world = p; change(y) }
	}
	pair := ranks.Places{Tensor: 2, Pipeline: 1}
	imagesMTP(t, ref.Opener{}, backend.Settings{}, []imageAxis{
		{name: "plain, on two ranks", change: on(pair, func(*toy) {})},
		{name: "three, on two ranks", change: on(pair, head(3)), took: proposes},
	})
	accepted := 0
	imagesMTP(t, ref.Opener{}, backend.Settings{}, []imageAxis{
		{name: "three, on one rank", change: head(3), took: func(r *imageRun) bool { accepted = r.accepted; return proposes(r) }},
		{name: "three, in three stages", change: on(ranks.Places{Tensor: 1, Pipeline: 3}, head(3)), took: func(r *imageRun) bool { return r.accepted == accepted }},
	})
}
