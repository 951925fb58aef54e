package engine_test

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"testing"

	"vapp.dev/engine"
	"vapp.dev/engine/backend"
	"vapp.dev/engine/backend/ref"
	"vapp.dev/engine/models"
	"vapp.dev/engine/tokenizer"
	"vapp.dev/kernels"
)

// poolGolden is a golden.json of models/testdata/pooling.
type poolGolden struct {
	Checkpoint string
	Runs       []struct {
		Text   string
		IDs    []int32
		Values []float32
	}
}

func readPoolGolden(t *testing.T, dir string) poolGolden {
	t.Helper()
	var g poolGolden
	b, err := os.ReadFile(filepath.Join(dir, "golden.json"))
	if err == nil {
		err = json.Unmarshal(b, &g)
	}
	if err != nil || len(g.Runs) == 0 {
		t.Fatal(err, len(g.Runs))
	}
	weights, err := os.ReadFile(filepath.Join(dir, "model.safetensors"))
	if err != nil {
		t.Fatal(err)
	}
	if sum := sha256.Sum256(weights); hex.EncodeToString(sum[:]) != g.Checkpoint {
		t.Errorf("%s has changed since it was recorded", dir)
	}
	return g
}

// pooledAs are the recorded checkpoints, with the profile's pooling options and the expected Pooling.
var pooledAs = map[string]struct {
	options engine.PoolingOptions
	want    engine.Pooling
	how     engine.PoolingMode
	// finish converts the engine's row to the recorded form.
	finish func([]float32) []float32
}{
	"qwen3-embed": {want: engine.Pooling{Task: "embed", Type: "LAST", Normalize: true, Why: "1_Pooling/config.json"}, how: engine.PoolingLast, finish: unit},
	"llama-mean": {want: engine.Pooling{Task: "embed", Type: "MEAN", Matryoshka: true, Dimensions: []int{16, 32, 64}, Why: "1_Pooling/config.json"}, how: engine.PoolingMean,
		finish: func(x []float32) []float32 { return x }},
	"qwen2-classify": {want: engine.Pooling{Task: "classify", Type: "LAST", Activation: "softmax", Labels: []string{"bad", "fair", "good"}, Why: "by default"}, how: engine.PoolingLast, finish: shares},
	"qwen3-rerank": {options: engine.PoolingOptions{Tokens: []string{"no", "yes"}},
		want: engine.Pooling{Task: "classify", Type: "LAST", Activation: "sigmoid", Labels: []string{"yes"}, Tokens: []string{"no", "yes"}, Why: "by default"}, how: engine.PoolingLast,
		finish: func(x []float32) []float32 { return shares(x)[1:] }},
}

func unit(x []float32) []float32 {
	var sum float64
	for _, v := range x {
		sum += float64(v) * float64(v)
	}
	out := make([]float32, len(x))
	for i, v := range x {
		out[i] = float32(float64(v) / math.Sqrt(sum))
	}
	return out
}

func shares(x []float32) []float32 {
	var sum float64
	for _, v := range x {
		sum += math.Exp(float64(v))
	}
	out := make([]float32, len(x))
	for i, v := range x {
		out[i] = float32(math.Exp(float64(v)) / sum)
	}
	return out
}

// TestPoolingGolden: texts give the recorded ids, and these the results of transformers and Sentence
// Transformers.
func TestPoolingGolden(t *testing.T) { poolGoldens(t, ref.Opener{}, backend.Settings{}, 2e-5) }

func poolGoldens(t *testing.T, on backend.Opener, s backend.Settings, bound float64) {
	for name, c := range pooledAs {
		t.Run(name, func(t *testing.T) {
			dir := filepath.Join("models/testdata/pooling", name)
			g := readPoolGolden(t, dir)
			y := &toy{dir: dir, slabs: 16, on: on, pooling: c.options, build: models.Build{Dtype: kernels.F32}, opts: engine.Options{
				MaxModelLen: 256, MaxNumSeqs: 4, MaxNumBatchedTokens: 24, BlockSize: 16, KVFormat: kernels.F32, ChunkedPrefill: true, PrefixCaching: true, Overlap: true, Backend: s,
			}}
			e := y.open(t)
			if q := *y.model.Pooling; !samePooling(q, c.want) {
				t.Errorf("it pools as %+v, want %+v", q, c.want)
			}
			text, err := y.model.Checkpoint.TokenizerJSON()
			if err != nil {
				t.Fatal(err)
			}
			tok, err := tokenizer.Load(text, tokenizer.LoadOptions{})
			if err != nil {
				t.Fatal(err)
			}
			defer tok.Close()
			for _, run := range g.Runs {
				ids, err := tok.Encode(run.Text, true)
				if err != nil || !equal(ids, run.IDs) {
					t.Errorf("%q is %v (%v), recorded %v", run.Text, ids, err, run.IDs)
				}
				streams, err := e.Submit(context.Background(), engine.Request{ID: "r", Prompt: run.IDs, Pooling: c.how})
				if err != nil {
					t.Fatal(err)
				}
				_, last := collect(t, streams[0])
				got := c.finish(last.Pooled)
				if len(got) != len(run.Values) {
					t.Fatalf("%d numbers, recorded %d", len(got), len(run.Values))
				}
				for i, x := range run.Values {
					if d := math.Abs(float64(got[i] - x)); !(d <= bound*max(1, math.Abs(float64(x)))) {
						t.Errorf("%.20q: number %d is %g, recorded %g", run.Text, i, got[i], x)
						break
					}
				}
			}
		})
	}
}

func equal(a, b []int32) bool {
	same := len(a) == len(b)
	for i := 0; same && i < len(a); i++ {
		same = a[i] == b[i]
	}
	return same
}

func samePooling(a, b engine.Pooling) bool {
	x, _ := json.Marshal(a)
	y, _ := json.Marshal(b)
	return string(x) == string(y)
}
