package plan_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"

	"vapp.dev/appliance/plan"
	"vapp.dev/engine/backend/cuda"
	"vapp.dev/engine/backend/devices"
	"vapp.dev/schema"
)

// families are a model of each kind, with the optional fields that its profile may have.
var families = []struct{ model, fields string }{
	{"meta-llama/Llama-3.2-1B", ""},
	{"deepseek-ai/DeepSeek-R1-Distill-Qwen-7B", `model: dtype: "float16"`},
	{"Qwen/Qwen2-7B-Instruct", `parallel: {tensor: 2, pipeline: 2}`},
	{"openai/gpt-oss-20b", `parallel: tensor: 2`},
	{"google/gemma-4-26B-A4B-it", `quantization: "fp8", multimodal: limits: image: 1`},
	{"google/gemma-4-31B-it", `memory: {kvRebuild: true, kvCacheDtype: "fp8"}`},
	{"Qwen/Qwen3.5-27B-FP8", `parallel: tensor: 2, speculative: {method: "mtp", numTokens: 2}`},
	{"meta-llama/Llama-3.2-1B", `lora: {maxLoras: 4, maxRank: 32}`},
}

// on returns the inputs of a family's profile for a device with that much memory.
func on(t *testing.T, model, fields, device string) plan.Inputs {
	t.Helper()
	p := profile(t, "family.cue", fmt.Sprintf("import \"vapp.dev/schema\"\n\nschema.#Profile & {\n\tname: \"family\"\n\tmodel: source: %q\n\t%s\n}\n", model, fields))
	d, err := devices.Find(device)
	if err != nil {
		t.Fatal(err)
	}
	return plan.Inputs{Profile: p, Model: inspect(t, plan.Source(p, "")), Opener: cuda.Opener{}, Facts: d.Facts("cuda")}
}

// TestFamilies checks every family on several devices: the ledger is within the budget and equals the
// sum of its parts, longer sequences never fit more often, more memory never fits less, and an
// automatic length is the longest that fits: one more block does not.
func TestFamilies(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 6))
	planned := map[string]int{}
	for _, f := range families {
		for _, device := range []string{"v100-32g", "a100-80g", "b200"} {
			i := on(t, f.model, f.fields, device)
			i.Facts.TotalBytes += r.Int64N(8<<30) - 4<<30
			p, err := plan.Make(i)
			var short *plan.DoesNotFitError
			if errors.As(err, &short) {
				continue
			} else if err != nil {
				t.Errorf("%s on %s: %v", f.model, device, err)
				continue
			}
			planned[f.model+f.fields]++
			t.Run(f.model+" "+device, func(t *testing.T) {
				holds(t, i, p, r)
				falls(t, p)
				longest(t, i, p)
			})
		}
	}
	for _, f := range families {
		if planned[f.model+f.fields] == 0 {
			t.Errorf("%s %s fits nowhere", f.model, f.fields)
		}
	}
}

// falls checks that longer sequences never fit more often.
func falls(t *testing.T, p *plan.Plan) {
	t.Helper()
	for k, f := range p.Capacity.Lengths {
		if f.Loss() < 0 || f.Loss() >= 1 || f.Admitted > f.Sequences+1 || f.Running > p.Options.MaxNumSeqs {
			t.Errorf("%+v", f)
		}
		if k > 0 && (f.Sequences > p.Capacity.Lengths[k-1].Sequences || f.Admitted > p.Capacity.Lengths[k-1].Admitted || f.Concurrency > p.Capacity.Lengths[k-1].Concurrency) {
			t.Errorf("longer fits more: %+v, %+v", p.Capacity.Lengths[k-1], f)
		}
	}
}

// longest checks that one block more than an automatic length does not fit.
func longest(t *testing.T, i plan.Inputs, p *plan.Plan) {
	t.Helper()
	n, most := p.Options.MaxModelLen, i.Model.Config.MaxPositionEmbeddings
	if i.Profile.MaxModelLen != schema.Auto || n == most {
		return
	}
	q := *i.Profile
	for _, c := range []struct {
		tokens int
		fits   bool
	}{{n, true}, {n + p.Options.BlockSize, false}} {
		q.MaxModelLen = schema.Count(min(c.tokens, most))
		i.Profile = &q
		if _, err := plan.Make(i); (err == nil) != c.fits {
			t.Errorf("automatic is %d tokens; %d: %v", n, c.tokens, err)
		}
	}
}

// TestCostsOfChanges: changes that save memory do so in every family that supports them.
func TestCostsOfChanges(t *testing.T) {
	for _, c := range []struct{ model, more, less string }{
		{"google/gemma-4-26B-A4B-it", "", `quantization: "fp8"`},
		{"google/gemma-4-26B-A4B-it", "", `memory: kvCacheDtype: "fp8"`},
		{"google/gemma-4-26B-A4B-it", "", `memory: kvRebuild: true`},
		{"google/gemma-4-26B-A4B-it", `multimodal: limits: image: 1`, ""},
		{"Qwen/Qwen3.5-27B-FP8", `speculative: {method: "mtp", numTokens: 2}`, ""},
		{"openai/gpt-oss-20b", "", `parallel: tensor: 2`},
		{"openai/gpt-oss-20b", "", `parallel: pipeline: 2`},
		{"openai/gpt-oss-20b", "", `cudagraph: mode: "none"`},
		{"openai/gpt-oss-20b", "", `scheduler: {maxNumSeqs: 16, maxNumBatchedTokens: 512}`},
		{"Qwen/Qwen2-7B-Instruct", `lora: {maxLoras: 8}`, `lora: {}`},
	} {
		more, less := made(t, on(t, c.model, c.more, "a100-80g")), made(t, on(t, c.model, c.less, "a100-80g"))
		a, b := more.Capacity.Concurrency*float64(more.Options.MaxModelLen), less.Capacity.Concurrency*float64(less.Options.MaxModelLen)
		if b <= a {
			t.Errorf("%s: %q carries %.0f tokens, %q %.0f", c.model, c.more, a, c.less, b)
		}
	}
}
