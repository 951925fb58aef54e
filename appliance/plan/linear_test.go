package plan_test

import (
	"bytes"
	"errors"
	"slices"
	"strings"
	"testing"

	"vapp.dev/appliance/plan"
	"vapp.dev/engine/backend"
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
		{fp8Model, `cuda: {linear: "cublaslt", activations: "16bit"}`, "h100", false}, {fp8Model, libraryFields, "h100", true},
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
		if !strings.Contains(c.fields, "16bit") && !strings.Contains(strings.Join(strings.Fields(text.String()), " "), said) {
			t.Errorf("%s on %s: the plan does not say %q:\n%s", c.model, c.device, said, &text)
		}
	}
}

// TestLibraryAuto: without the field, products are the library's where the facts have one that would
// multiply a weight, found or assumed. The plan is then that of "cublaslt". Else the kernels are vapp's
// own, and the plan says why.
func TestLibraryAuto(t *testing.T) {
	const fp8, odd = `cuda: activations: "fp8"`, `scheduler: {maxNumSeqs: 255, maxNumBatchedTokens: 2048}`
	found := func(f *backend.Facts) { f.Measured, f.CUBLASLt = true, "13.0.2" }
	for _, c := range []struct {
		model, fields, device string
		change                func(*backend.Facts)
		want, warning         string
		library               bool
	}{
		{denseModel, "", "h100", nil, "own  (auto: no cuBLASLt is assumed; --gpu NAME+cublaslt=13.0 assumes one)", "", false},
		{denseModel, "", "h100+cublaslt=12.4", nil, "cublaslt  (12.4.0 is assumed, for dense bf16 and f16 beyond 16 rows; 32 MiB", "", true},
		{denseModel, `cuda: linear: "auto"`, "h100", found, "cublaslt  (13.0.2 is found, for dense bf16 and f16", "", true},
		{denseModel, "", "h100", func(f *backend.Facts) { f.Measured = true }, "own  (auto: this machine has no cuBLASLt)", "", false},
		{denseModel, "", "h100", func(f *backend.Facts) { f.Measured, f.NoCUBLASLt = true, "no cuBLASLt (torn)" },
			"own  (auto: the cuBLASLt of this machine cannot be used)", "cuda.linear: own kernels multiply: no cuBLASLt (torn)", false},
		{denseModel, `cuda: linear: "own"`, "h100", found, "", "", false},
		{fp8Model, fp8, "h100", found, "cublaslt  (13.0.2 is found, for dense bf16, f16 and f8_e4m3", "", true},
		{fp8Model, fp8, "h100+cublaslt=12.8", nil, "f8_e4m3 is vapp's: the library scales by row and by block from 12.9 on", "", true},
		{fp8Model, fp8 + "\n" + odd, "h100", found, "own  (auto: cuBLASLt takes scales of blocks for multiples of 4 rows; make", "", false},
		{denseModel, odd, "h100", found, "cublaslt  (13.0.2 is found", "", true},
	} {
		i := on(t, c.model, c.fields, c.device)
		if c.change != nil {
			c.change(&i.Facts)
		}
		p := made(t, i)
		var b bytes.Buffer
		if err := p.TextAs(&b, plan.Form{Verbose: true}); err != nil {
			t.Fatal(err)
		}
		line := strings.Join(strings.Fields(b.String()), " ")
		if !strings.Contains(line, strings.Join(strings.Fields(c.want), " ")) || c.want == "" && strings.Contains(line, " linear own") {
			t.Errorf("%s on %s with %s: the plan does not say %q:\n%s", c.model, c.device, c.fields, c.want, &b)
		}
		if got := p.Ledger.Bytes("cublaslt") > 0; got != c.library {
			t.Errorf("%s on %s with %s: the library multiplies: %v", c.model, c.device, c.fields, got)
		}
		if got := slices.Contains(p.Warnings, c.warning); got != (c.warning != "") {
			t.Errorf("%s on %s with %s: warnings %q, want %q", c.model, c.device, c.fields, p.Warnings, c.warning)
		}
	}
	asked, auto := made(t, on(t, denseModel, libraryFields, "h100")), made(t, on(t, denseModel, "", "h100+cublaslt=13.0"))
	if a, b := asked.Ledger, auto.Ledger; !slices.EqualFunc(a, b, func(x, y plan.Item) bool { return x.Name == y.Name && x.Bytes == y.Bytes }) {
		t.Errorf("as set:\n%v\nauto:\n%v", a, b)
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
