package compat_test

import (
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"

	"vapp.dev/appliance/plan"
	"vapp.dev/engine"
	"vapp.dev/engine/backend/cuda"
	"vapp.dev/engine/backend/devices"
	"vapp.dev/engine/models"
	"vapp.dev/internal/goldentest"
	"vapp.dev/tools/compat"
)

// run is a run of vLLM whose log has the size of its KV cache.
type run struct {
	name, model  string
	fields       string // of the profile
	kv           int64  // bytes of KV cache on a GPU, from the rounded figure of the log
	tensor, spec int
	// published ideal counts at 1K, 4K, 16K, 64K and the full length
	ideal  [5]float64
	length int
}

var runs = []run{
	{"gpt-oss-20b", "openai/gpt-oss-20b", "", 39256001085, 1, 0, [5]float64{1386.57, 378.16, 96.74, 24.33, 12.17}, 131072},
	{"gemma-4-26b bf16", "google/gemma-4-26B-A4B-it", "", 23085449216, 1, 0, [5]float64{100.07, 78.63, 42.34, 14.88, 7.98}, 131072},
	{"gemma-4-26b fp8", "google/gemma-4-26B-A4B-it", `quantization: "fp8"`, 26252987596, 1, 0, [5]float64{113.80, 89.42, 48.15, 16.92, 4.71}, 262144},
	{"gemma-4-31b bf16", "google/gemma-4-31B-it", "", 16299400888, 1, 0, [5]float64{17.66, 13.88, 7.47, 2.63, 1.41}, 131072},
	{"qwen3.5-27b-fp8 tp 2 mtp 2", "Qwen/Qwen3.5-27B-FP8", `parallel: tensor: 2, speculative: {method: "mtp", numTokens: 2}`, 14613626224, 2, 2,
		[5]float64{55.23, 39.33, 18.28, 5.82, 1.56}, 262144},
}

// TestIdeal compares the sequences that a plan's KV pool holds, with its pages and slabs, with
// exact pools of the same bytes. The loss is at most 2 % for five runs at five lengths. Counts are
// fractions of sequences at steady state, because a whole number of 1.4 sequences hides the loss.
func TestIdeal(t *testing.T) {
	var b strings.Builder
	fmt.Fprintf(&b, "%-28s %8s %10s %10s %8s\n", "run", "length", "exact", "pool", "loss %")
	complete := true
	for _, r := range runs {
		p, err := r.plan(t)
		var unsupported *models.UnsupportedError
		if errors.As(err, &unsupported) {
			t.Logf("%s: %v", r.name, err)
			complete = false
			continue
		} else if err != nil {
			t.Errorf("%s: %v", r.name, err)
			continue
		}
		r.check(t, p, &b)
	}
	if complete {
		goldentest.Compare(t, "testdata/ideal.txt", b.String())
	}
}

func (r run) plan(t *testing.T) (*plan.Plan, error) {
	d, err := devices.Find("b200")
	if err != nil {
		t.Fatal(err)
	}
	p := profile(t, "run.cue", fmt.Sprintf("import \"vapp.dev/schema\"\n\nschema.#Profile & {\n\tname: \"run\"\n\tmodel: source: %q\n\tmaxModelLen: %d\n\tmemory: kvCache: %d\n\t%s\n}\n",
		r.model, r.length, r.kv, r.fields))
	m, err := engine.Inspect(plan.Source(p, ""))
	if err != nil {
		return nil, err
	}
	return plan.Make(plan.Inputs{Profile: p, Model: m, Opener: cuda.Opener{}, Facts: d.Facts("cuda")})
}

func (r run) check(t *testing.T, p *plan.Plan, b *strings.Builder) {
	cfg, _, err := models.CatalogueConfig(r.model)
	if err != nil {
		t.Fatal(err)
	}
	for k, n := range []int{1 << 10, 4 << 10, 16 << 10, 64 << 10, r.length} {
		var fit plan.Fit
		for _, f := range p.Capacity.Lengths {
			if f.Tokens == n {
				fit = f
			}
		}
		exact, err := compat.IdealSequences(cfg, r.tensor, r.spec, r.kv, n)
		if err != nil {
			t.Fatal(err)
		}
		if math.Abs(exact-fit.Ideal) > 1e-9*exact || math.Abs(exact-r.ideal[k]) > 0.0051 {
			t.Errorf("%s at %d: exact pools hold %.4f, planned %.4f, published %.2f", r.name, n, exact, fit.Ideal, r.ideal[k])
		}
		if fit.Loss() > 0.02 {
			t.Errorf("%s at %d: %.3f of %.3f, %.1f %% lost", r.name, n, fit.Concurrency, exact, 100*fit.Loss())
		}
		fmt.Fprintf(b, "%-28s %8d %10.3f %10.3f %8.2f\n", r.name, n, exact, fit.Concurrency, 100*fit.Loss())
	}
}
