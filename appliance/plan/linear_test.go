package plan_test

import (
	"bytes"
	"errors"
	"strings"
	"testing"

	"vapp.dev/appliance/plan"
	"vapp.dev/engine/backend/cpu"
	"vapp.dev/engine/backend/ref"
	"vapp.dev/schema"
)

const denseModel, libraryFields = "Qwen/Qwen3-8B", `cuda: linear: "cublaslt"`

// TestLibrary: with cuBLASLt in the profile, it is in the text, the JSON and the table of kernels, and
// its workspace and own memory are in the ledger. Without it all kernels are vapp's own.
func TestLibrary(t *testing.T) {
	own, p := made(t, on(t, denseModel, "", "h100")), made(t, on(t, denseModel, libraryFields, "h100"))
	var text, json bytes.Buffer
	if err := errors.Join(p.TextAs(&text, plan.Form{Verbose: true}), p.JSON(&json)); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"  linear           cublaslt  (as set, ", "linear_bf16_cublaslt", " cublaslt cublaslt "} {
		if !strings.Contains(text.String(), want) {
			t.Errorf("the plan does not say %q:\n%s", want, &text)
		}
	}
	if want := `"kernel": "linear_bf16_plain_8"`; !strings.Contains(json.String(), want) {
		t.Errorf("the plan's JSON does not say %s", want)
	}
	if strings.Contains(json.String(), `"linear_bf16_wide"`) || strings.Contains(says(t, on(t, denseModel, `cuda: linear: "own"`, "h100")), "cublaslt") {
		t.Error("products are own kernels' beside the library's")
	}
	if own.Ledger.Bytes("cublaslt") != 0 || p.Ledger.Bytes("cublaslt") == 0 || p.Ledger.Bytes("workspace") < 32<<20 {
		t.Errorf("the library has %d bytes (%d without), and a workspace of %d", p.Ledger.Bytes("cublaslt"), own.Ledger.Bytes("cublaslt"), p.Ledger.Bytes("workspace"))
	}
	if !strings.Contains(text.String(), "the most that the library's algorithms may want") || strings.Contains(says(t, on(t, denseModel, "", "h100")), "algorithms") {
		t.Errorf("of the workspace the library's part is not told:\n%s", &text)
	}
	if a, b := own.Ledger.Bytes("weights"), p.Ledger.Bytes("weights"); a != b {
		t.Errorf("weights take %d bytes, and %d row by row", a, b)
	}
	mixed := made(t, on(t, "openai/gpt-oss-20b", libraryFields, "h100")) // experts keep their panel format
	if mixed.Ledger.Bytes("cublaslt") == 0 {
		t.Error("dense weights beside experts are not the library's")
	}
}

// TestLibraryFP8: with fp8 activations on compute capability 9.0 the library also multiplies fp8 weights,
// with block scales or with the row scales of quantization at load. On other devices vapp's own
// kernels do, and the plan shows it.
func TestLibraryFP8(t *testing.T) {
	const product, both = "linear_f8_e4m3_x8_cublaslt", `cuda: {linear: "cublaslt", activations: "fp8"}`
	for _, c := range []struct {
		model, fields, device string
		library               bool
	}{
		{fp8Model, both, "h100", true}, {denseModel, `quantization: "fp8", ` + both, "h200", true},
		{denseModel, `quantization: "fp8", ` + both, "b200", false}, {fp8Model, both, "b200", false},
		{fp8Model, libraryFields, "h100", false}, // with 16-bit activations
	} {
		p := made(t, on(t, c.model, c.fields, c.device))
		var text, json bytes.Buffer
		if err := errors.Join(p.TextAs(&text, plan.Form{Verbose: true}), p.JSON(&json)); err != nil {
			t.Fatal(err)
		}
		if got := strings.Contains(text.String(), product) && strings.Contains(json.String(), `"kernel": "linear_f8_e4m3_x8_plain_8"`); got != c.library {
			t.Errorf("%s on %s with %s: the library has fp8: %v\n%s", c.model, c.device, c.fields, got, &text)
		}
		said := "f8_e4m3 is vapp's: the library scales by row and by block on compute capability 9.0 alone"
		if c.library {
			said = "for dense bf16, f16 and f8_e4m3 beyond 16 rows; 32 MiB"
		}
		if c.fields != libraryFields && !strings.Contains(strings.Join(strings.Fields(text.String()), " "), said) {
			t.Errorf("%s on %s: the plan does not say %q:\n%s", c.model, c.device, said, &text)
		}
	}
}

// TestLibraryRefused: if the library would multiply nothing, the error has the field's position.
func TestLibraryRefused(t *testing.T) {
	for _, c := range []struct{ model, device, backend, want string }{
		{denseModel, "h100", "cpu", "backend cpu has no products by cublaslt; leave the field out, or take backend cuda"},
		{denseModel, "h100", "ref", "backend ref has no products by cublaslt"},
		{denseModel, "mi300x", "cuda", "the architecture of AMD Instinct MI300X is not CUDA's; leave the field out"},
	} {
		i := on(t, c.model, libraryFields, c.device)
		switch c.backend {
		case "cpu":
			i.Opener, i.Facts = cpu.Opener{}, server
			i.Facts.Backend, i.Facts.Variants = "cpu", []string{"avx2"}
		case "ref":
			i.Opener, i.Facts = ref.Opener{}, server
		}
		_, err := plan.Make(i)
		var placed *schema.Error
		if !errors.As(err, &placed) || !strings.Contains(err.Error(), "family.cue:6:") || !strings.Contains(err.Error(), "cuda.linear: ") || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s on %s: %v", c.model, c.device, err)
		}
	}
}
