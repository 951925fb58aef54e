package plan_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"vapp.dev/appliance/plan"
	"vapp.dev/engine"
	"vapp.dev/engine/backend/cuda"
	"vapp.dev/engine/backend/devices"
	"vapp.dev/engine/enginetest"
	"vapp.dev/kernels"
	"vapp.dev/schema"
)

// edited plans a model of the catalogue with these lines in model, on an H100.
func edited(t *testing.T, lines string) (*plan.Plan, error) {
	t.Helper()
	p := profile(t, "profile.cue", fmt.Sprintf("import \"vapp.dev/schema\"\n\nschema.#Profile & {\n\tname: \"x\"\n\tmodel: {source: \"Qwen/Qwen3-8B\"\n%s}\n}\n", lines))
	d, err := devices.Find("h100-80g")
	if err != nil {
		t.Fatal(err)
	}
	s := plan.Source(p, "")
	s.Path = "testdata/absent"
	try := func(s engine.Source) error {
		m, err := engine.Inspect(s)
		if err == nil {
			m.Close()
		}
		return err
	}
	m, err := engine.Inspect(s)
	if err != nil {
		return nil, plan.LocateBuildError(p, s, err, try)
	}
	t.Cleanup(func() { m.Close() })
	return plan.Make(plan.Inputs{Profile: p, Model: m, Opener: cuda.Opener{}, Facts: d.Facts("cuda")})
}

// TestEdited checks that the length follows the rope and that the plan lists each replaced field.
func TestEdited(t *testing.T) {
	for name, c := range map[string]struct {
		lines   string
		longest int
		want    string // a choice, or part of a warning
	}{
		"rope":      {`rope: {type: "yarn", factor: 4, original: "32K"}`, 131072, `config rope_scaling: {"rope_type":"default"} → {"factor":4,"original_max_position_embeddings":32768,"rope_type":"yarn"}`},
		"length":    {`rope: {type: "yarn", factor: 4, original: "32K"}`, 131072, "config max_position_embeddings: 40960 → 131072"},
		"overrides": {`overrides: rope_scaling: {rope_type: "yarn", factor: 2.0, original_max_position_embeddings: 32768}`, 65536, `config rope_scaling: null → {"factor":2,"original_max_position_embeddings":32768,"rope_type":"yarn"}`},
		"dynamic":   {`rope: {type: "dynamic", factor: 2}`, 81920, "rope: dynamic: base for 81,920 tokens"},
		"theta":     {`rope: theta: 5000000`, 40960, "config rope_theta: 1000000 → 5000000"},
		"near":      {`overrides: max_positions_embeddings: 9`, 40960, "was max_position_embeddings meant?"},
	} {
		p, err := edited(t, c.lines)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		var lines []string
		for _, x := range p.Choices {
			lines = append(lines, x.Name+": "+x.Value)
		}
		if text := strings.Join(append(lines, p.Warnings...), "\n"); !strings.Contains(text, c.want) || p.Options.MaxModelLen != c.longest {
			t.Errorf("%s: %d tokens, want %d and %s in\n%s", name, p.Options.MaxModelLen, c.longest, c.want, text)
		}
	}
}

// TestEditedShapes checks that a field which contradicts the tensors of a checkpoint is refused at
// model.overrides, and that the same field is planned with random weights.
func TestEditedShapes(t *testing.T) {
	dir := t.TempDir()
	if err := enginetest.WriteLlama(dir, enginetest.Llama{DType: kernels.BF16, Tied: true}); err != nil {
		t.Fatal(err)
	}
	for format, want := range map[string]string{"auto": "has shape [128 64] instead of [256 64]", "dummy": ""} {
		p := profile(t, "profile.cue", fmt.Sprintf("import \"vapp.dev/schema\"\n\nschema.#Profile & {\n\tname: \"x\"\n\tmodel: {source: %q, loadFormat: %q, overrides: intermediate_size: 256}\n}\n", dir, format))
		try := func(s engine.Source) error {
			m, err := engine.Inspect(s)
			if err == nil {
				err = m.Close()
			}
			return err
		}
		s := plan.Source(p, "")
		err := try(s)
		if want == "" {
			if err != nil {
				t.Errorf("%s: %v", format, err)
			}
			continue
		}
		var e *schema.Error
		if err = plan.LocateBuildError(p, s, err, try); !errors.As(err, &e) || e.List[0].Path != "model.overrides" || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", format, err)
		}
	}
}

// TestEditedRefused checks that a refusal names the field of the profile.
func TestEditedRefused(t *testing.T) {
	for lines, want := range map[string][2]string{
		`rope: {type: "longrope", shortFactors: [1], longFactors: [1]}`: {"model.rope", "1 factors for 128 rotated dimensions"},
		`overrides: hidden_act: "relu"`:                                 {"model.overrides", "hidden_act relu"},
		`overrides: rope_scaling: {rope_type: "fractal", factor: 2}`:    {"model.overrides", "fractal is not supported"},
		`overrides: architectures: ["UnicornForCausalLM"]`:              {"model.overrides", "UnicornForCausalLM"},
		`overrides: num_attention_heads: 7`:                             {"model.overrides", "num_key_value_heads"},
	} {
		_, err := edited(t, lines)
		var e *schema.Error
		if !errors.As(err, &e) || e.List[0].Path != want[0] || !strings.Contains(err.Error(), want[1]) {
			t.Errorf("%s: %v", lines, err)
		}
	}
}
