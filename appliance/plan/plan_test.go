package plan_test

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"slices"
	"testing"

	"vapp.dev/appliance/plan"
	"vapp.dev/engine"
	"vapp.dev/engine/backend"
	"vapp.dev/engine/backend/ref"
	"vapp.dev/engine/enginetest"
	"vapp.dev/kernels"
	"vapp.dev/schema"
)

// server is the machine of the goldens: 16 cores and 64 GiB.
var server = backend.Facts{
	Backend: "ref", Device: "16-core server", TotalBytes: 64 << 30, Cores: 16, Variants: []string{"go"},
	PageBytes: 4096, HugeBytes: 2 << 20, L2Bytes: 1 << 20, MemoryLimit: "system",
}

func profile(t testing.TB, name, text string) *schema.Profile {
	t.Helper()
	p, err := schema.Parse(name, []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func shipped(t testing.TB, name string) *schema.Profile {
	t.Helper()
	p, err := schema.Load("../../profiles/" + name)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func inspect(t testing.TB, s engine.Source) *engine.Model {
	t.Helper()
	m, err := engine.Inspect(s)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { m.Close() })
	return m
}

// llama1B returns the model of the catalogue; nothing of it is on disk.
func llama1B(t testing.TB) *engine.Model {
	return inspect(t, engine.Source{Path: "testdata/absent", Name: "meta-llama/Llama-3.2-1B", Format: "auto"})
}

// toy returns a checkpoint of 2 layers with real files.
func toy(t testing.TB) *engine.Model {
	dir := t.TempDir()
	if err := enginetest.WriteLlama(dir, enginetest.Llama{DType: kernels.BF16, Tied: true}); err != nil {
		t.Fatal(err)
	}
	return inspect(t, engine.Source{Path: dir, Name: "toy", Format: "auto"})
}

func in(p *schema.Profile, m *engine.Model, f backend.Facts) plan.Inputs {
	return plan.Inputs{Profile: p, Model: m, Opener: ref.Opener{}, Facts: f}
}

func made(t testing.TB, i plan.Inputs) *plan.Plan {
	t.Helper()
	p, err := plan.Make(i)
	if err != nil {
		t.Fatalf("%+v", err)
	}
	return p
}

// smol returns a directory with only a config, of the shapes of SmolLM2-135M in bf16.
func smol(t testing.TB) *engine.Model {
	t.Chdir(t.TempDir())
	config := enginetest.Llama{
		Layers: 30, Hidden: 576, Heads: 9, KVHeads: 3, HeadDim: 64, Vocab: 49152, Intermediate: 1536, MaxPos: 8192,
		Tied: true, DType: kernels.BF16,
	}.ConfigJSON()
	if err := os.MkdirAll("smol", 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile("smol/config.json", config, 0o644); err != nil {
		t.Fatal(err)
	}
	return inspect(t, engine.Source{Path: "smol", Name: "smol", Format: "auto"})
}

// says returns the plan of Make as text, or its error in short and long form.
func says(t testing.TB, i plan.Inputs) string {
	t.Helper()
	p, err := plan.Make(i)
	if short := (*plan.DoesNotFitError)(nil); errors.As(err, &short) {
		short.Verbose = true
		return fmt.Sprintf("%v\n\n%+v\n", err, err)
	}
	if err != nil {
		return err.Error() + "\n"
	}
	var b bytes.Buffer
	if err := p.TextAs(&b, plan.Form{Verbose: true}); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// TestTextWorkers: the ledger has memory for all text workers of the server.
func TestTextWorkers(t *testing.T) {
	p := made(t, in(shipped(t, "smollm2.cue"), smol(t), server))
	i := slices.IndexFunc(p.Ledger, func(it plan.Item) bool { return it.Name == "text" })
	parts := p.Ledger[i].Parts
	k := slices.IndexFunc(parts, func(it plan.Item) bool { return it.Name == "workers" })
	// each worker renders within its limit, from a conversation of at most the same size
	if k < 0 || parts[k].Bytes < 2*plan.TextWorkers*plan.TextRender {
		t.Errorf("the text line's parts are %+v", parts)
	}
}
