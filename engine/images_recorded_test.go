package engine_test

import (
	"cmp"
	"context"
	"crypto/sha256"
	"path/filepath"
	"strings"
	"testing"

	"vapp.dev/engine"
	"vapp.dev/engine/backend"
	"vapp.dev/engine/backend/ref"
	"vapp.dev/engine/enginetest"
	"vapp.dev/engine/models"
	"vapp.dev/engine/ranks"
	"vapp.dev/engine/sample"
	"vapp.dev/kernels"
)

// TestImagesRecorded sends the recorded prompts with images through the whole engine, in large steps and in
// steps no larger than the largest image. Replies are transformers' greedy continuations.
func TestImagesRecorded(t *testing.T) {
	if testing.Short() {
		t.Skip("not run: -short leaves it out, make test runs it")
	}
	imagesRecorded(t, ref.Opener{}, backend.Settings{}, enginetest.BoundFloat, ranks.Places{})
}

func imagesRecorded(t *testing.T, on backend.Opener, s backend.Settings, limit func(string, kernels.Format) enginetest.GoldenBound, world ranks.Places) {
	for _, name := range []string{"tiny-gemma4-tower", "tiny-gemma4-moe-tower", "tiny-qwen35-tower"} {
		if world.Pipeline > 1 && name == "tiny-qwen35-tower" {
			continue // its last layers are no attention, so that it has no stages
		}
		for what, tokens := range map[string]int{"large steps": 512, "small steps": 20} {
			t.Run(name+"/"+what, func(t *testing.T) {
				y := recordedImages(name, on, s, tokens)
				y.world = world
				if enginetest.Exact(name, limit) {
					y.build.Dtype = kernels.F32 // towers keep K and V in the activation format, and the reference's is float32
				}
				y.replies(t, recordedRun{name: name, kind: "*", limit: limit})
			})
		}
	}
}

// recordedImages returns a recorded checkpoint with a tower whose steps have that many tokens.
func recordedImages(name string, on backend.Opener, s backend.Settings, tokens int) *toy {
	y := &toy{dir: filepath.Join("models/testdata", name), on: on, slabs: 64, build: models.Build{Vision: true}, opts: engine.Options{
		MaxModelLen: 160, MaxNumSeqs: 8, MaxNumBatchedTokens: tokens, BlockSize: 16, KVFormat: kernels.F32, ChunkedPrefill: true, PrefixCaching: true,
		Overlap: true, Backend: s, Items: engine.ItemOptions{Patches: 180},
	}}
	if enginetest.Recurrent(name) {
		y.build.Dtype = kernels.F32 // as in the recorded run
	}
	return y
}

// recordedRun is a run of recorded prompts with images.
type recordedRun struct {
	name, kind string // checkpoint, and which of its prompts; *: all
	tokens     int    // of a reply; 0: as many as are recorded
	limit      func(string, kernels.Format) enginetest.GoldenBound
	opened     func(*engine.Engine) // called before the first step, unless nil
}

// replies sends recorded prompts and compares the replies with the recorded ones. It returns the engine.
func (y *toy) replies(t *testing.T, r recordedRun) *engine.Engine {
	t.Helper()
	files, err := filepath.Glob("models/testdata/media/" + r.name + "." + r.kind + ".safetensors")
	if err != nil || len(files) == 0 {
		t.Fatalf("golden files: %v, %v", files, err)
	}
	m := y.inspect(t)
	plans := y.account(t, m).PlanOnly
	if err := m.Close(); err != nil {
		t.Fatal(err)
	}
	if plans != nil {
		t.Skipf("not run: %v", plans)
	}
	e := y.open(t)
	if r.opened != nil {
		r.opened(e)
	}
	all, streams := make([]*enginetest.Golden, len(files)), make([]*engine.Stream, len(files))
	for i, file := range files {
		if all[i], err = enginetest.ReadGolden(file); err != nil {
			t.Fatal(err)
		}
		q := recordedRequest(all[i], strings.Contains(r.name, "qwen"))
		q.Params.MaxTokens = min(q.Params.MaxTokens, cmp.Or(r.tokens, q.Params.MaxTokens))
		got, err := e.Submit(context.Background(), q)
		if err != nil {
			t.Fatal(err)
		}
		streams[i] = got[0]
	}
	for i, g := range all {
		tokens, last := collect(t, streams[i])
		if last.Finish != engine.FinishLength || len(tokens) != cmp.Or(r.tokens, len(g.DecodeIDs)+1) {
			t.Fatalf("%s: %d tokens, ended with %v: %v", files[i], len(tokens), last.Finish, last.Err)
		}
		sameReply(t, files[i], tokens, g, float32(float64(r.limit(r.name, kernels.F32).Gap)*g.Spread()))
	}
	return e
}

// recordedRequest returns the prompt of a golden file and its images.
func recordedRequest(g *enginetest.Golden, squares bool) engine.Request {
	r := engine.Request{Prompt: g.InputIDs, N: 1, Params: sample.Default()}
	r.Params.Temperature, r.Params.MaxTokens, r.Params.IgnoreEOS = 0, len(g.DecodeIDs)+1, true
	cols := 3 * 4 * 4
	if squares {
		cols *= 2 // two frames
	}
	for _, x := range g.Items {
		r.Items = append(r.Items, engine.Item{
			Hash: sha256.Sum256([]byte{byte(x.Seed >> 8), byte(x.Seed), byte(x.Across), byte(x.Down)}),
			At:   x.At, Tokens: x.Tokens, Pixels: x.Pixels(cols), Colours: x.Colours(), Across: x.Columns, Down: x.Rows,
		})
	}
	return r
}

// sameReply compares a reply with the recorded greedy tokens. At the first difference the reference's
// two largest logits must be closer than gap; tokens behind it follow from others and are not compared.
func sameReply(t *testing.T, what string, tokens []int32, g *enginetest.Golden, gap float32) {
	t.Helper()
	for i, id := range tokens {
		row := g.Row(len(g.InputIDs) - 1 + i)
		if id == row.TopIDs[0] {
			continue
		}
		if row.Gap() > gap {
			t.Errorf("%s: token %d is %d, recorded is %d with a gap of %.2g; the bound is %.2g", what, i, id, row.TopIDs[0], row.Gap(), gap)
		}
		return
	}
}
