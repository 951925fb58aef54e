package plan_test

import (
	"bytes"
	"errors"
	"strings"
	"testing"

	"vapp.dev/appliance/plan"
	"vapp.dev/engine/backend"
	"vapp.dev/engine/backend/cpu"
	"vapp.dev/engine/backend/ref"
	"vapp.dev/schema"
)

const fp8Model, fp8Fields = "Qwen/Qwen3.5-27B-FP8", `cuda: activations: "fp8"`

// TestFP8Activations: the profile's setting is in the text, the JSON, the table of kernels and the
// difference of two plans; weights take as many bytes as without it.
func TestFP8Activations(t *testing.T) {
	old, p := made(t, on(t, fp8Model, `cuda: activations: "16bit"`, "h100")), made(t, on(t, fp8Model, fp8Fields, "h100"))
	var text, json bytes.Buffer
	if err := errors.Join(p.TextAs(&text, plan.Form{Verbose: true}), p.JSON(&json)); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"  activations      fp8  (as set, with weights of f8_e4m3; with others bf16)\n",
		"linear_f8_e4m3_x8", "\n  linear f8_e4m3_x8 ",
	} {
		if !strings.Contains(text.String(), want) {
			t.Errorf("the plan does not say %q:\n%s", want, &text)
		}
	}
	for _, want := range []string{`"activations": "fp8"`, `"kernel": "linear_f8_e4m3_x8_wide"`} {
		if !strings.Contains(json.String(), want) {
			t.Errorf("the plan's JSON does not say %s", want)
		}
	}
	if strings.Contains(json.String(), `"linear_f8_e4m3_wide"`) {
		t.Error("some weights in fp8 meet activations in 16 bits")
	}
	if got := plan.Diff(old, p).String(); !strings.Contains(got, "bf16 → fp8\n") {
		t.Errorf("the difference of the plans:\n%s", got)
	}
	if a, b := old.Ledger.Bytes("weights"), p.Ledger.Bytes("weights"); a != b {
		t.Errorf("weights take %d bytes, and %d with activations in fp8", a, b)
	}
	quantized := made(t, on(t, "Qwen/Qwen3-8B", `quantization: "fp8", cuda: activations: "fp8"`, "l40s"))
	if got := quantized.Options.Backend.Activations; got != backend.FP8Activations {
		t.Errorf("activations of weights that are quantized at load: %q", got)
	}
	if auto := made(t, on(t, fp8Model, `cuda: activations: "auto"`, "a100-80g")).Options.Backend.Activations; auto != "" {
		t.Errorf("auto: %q", auto)
	}
	r := on(t, fp8Model, fp8Fields, "h100")
	r.Opener, r.Facts = ref.Opener{}, server
	if got := made(t, r); !strings.Contains(says(t, r), "activations      fp8") || got.Options.Backend.Activations != backend.FP8Activations {
		t.Errorf("backend ref: %+v", got.Options.Backend)
	}
}

// TestFP8ActivationsAuto: without the field, activations are rounded where the checkpoint says dynamic and
// the GPU multiplies fp8. Weights that the profile quantizes keep activations in 16 bits.
func TestFP8ActivationsAuto(t *testing.T) {
	for _, c := range []struct{ model, fields, device, want string }{
		{fp8Model, "", "h100", "activations fp8 (auto: the checkpoint says dynamic, with weights of f8_e4m3; with others bf16)"},
		{"Qwen/Qwen3-30B-A3B-FP8", `cuda: linear: "own"`, "rtx-4090", "activations fp8 (auto: the checkpoint says dynamic"},
		{fp8Model, "", "a100-80g", "activations bf16 (auto: the matrix units of NVIDIA A100-SXM4-80GB have no 8-bit floats)"},
		{fp8Model, `cuda: activations: "16bit"`, "h100", "activations bf16 (what the matrix units take)"},
		{"Qwen/Qwen3-8B", `quantization: "fp8"`, "h100", "activations bf16 (what the matrix units take)"},
	} {
		i := on(t, c.model, c.fields+"\n\tmaxModelLen: 1024", c.device)
		i.Facts.TotalBytes = 80 << 30
		p := made(t, i)
		if text := strings.Join(strings.Fields(p.String()), " "); !strings.Contains(text, c.want) {
			t.Errorf("%s with %s on %s: the plan does not say %q:\n%s", c.model, c.fields, c.device, c.want, p)
		}
		if got, want := p.Options.Backend.Activations == backend.FP8Activations, strings.Contains(c.want, "activations fp8"); got != want {
			t.Errorf("%s with %s on %s: rounded %v, want %v", c.model, c.fields, c.device, got, want)
		}
	}
	r := on(t, fp8Model, "", "h100")
	r.Opener, r.Facts = ref.Opener{}, server
	if got := made(t, r).Options.Backend.Activations; got != "" {
		t.Errorf("backend ref rounds without being told: %q", got)
	}
}

// TestFP8ActivationsRefused: if no kernel would multiply with fp8 activations, the error has the
// field's position.
func TestFP8ActivationsRefused(t *testing.T) {
	for _, c := range []struct{ model, device, backend, want string }{
		{fp8Model, "a100-80g", "cuda", "activations fp8: unsupported: the matrix units of NVIDIA A100"},
		{fp8Model, "h100", "cpu", "backend cpu has no products with fp8 activations; leave the field out, or take backend cuda"},
		{"Qwen/Qwen3-8B", "h100", "cuda", "Qwen/Qwen3-8B has no weights in fp8 that fp8 activations would meet; leave the field out, or set quantization"},
		{"openai/gpt-oss-20b", "h100", "cuda", "has no weights in fp8"},
	} {
		i := on(t, c.model, fp8Fields, c.device)
		if c.backend == "cpu" {
			i.Opener, i.Facts = cpu.Opener{}, server
			i.Facts.Backend, i.Facts.Variants = "cpu", []string{"avx2"}
		}
		_, err := plan.Make(i)
		var placed *schema.Error
		if !errors.As(err, &placed) || !strings.Contains(err.Error(), "family.cue:6:") || !strings.Contains(err.Error(), "cuda.activations: ") || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s on %s: %v", c.model, c.device, err)
		}
	}
}
