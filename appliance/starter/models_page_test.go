package starter

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"vapp.dev/appliance/chat/dialect"
	"vapp.dev/engine/enginetest"
	"vapp.dev/internal/goldentest"
)

const modelsPreface = `# Models: what runs, and the test that proves it

'make docs' generates this page from the data of the tests: the recorded runs of transformers (engine/models/testdata/golden), what every
architecture can be built as (engine/models/testdata/forms.txt), the GGUF architectures (engine/checkpoint/testdata/gguf_architectures.txt)
and the chat templates of TestParsersOf (appliance/starter). A mark stands only where that data has it; the test fails when the page is stale.

● computed and compared with a recorded run; ○ built, recorded as a program and planned, or read; – not; ✕ refused by name
([why](#refusals)); as X: llama.cpp's converter writes these models as X. Granite 4's hybrid models (tiny-granite4-h) have Mamba-2 layers, which
ref runs and other backends plan. Families without ● of safetensors share the recipe of another one in the same file of engine/models.

| column | ● | ○ |
|---|---|---|
| safetensors, CPU | TestGoldenRef, TestGoldenCPU (engine/models): logits of the checkpoint | TestForms (engine/models), form plain |
| GGUF | TestGoldenRef, TestGoldenCPU on a file in llama.cpp's names and blocks | TestGGUFArchitectures (engine/checkpoint): names and keys |
| AWQ, GPTQ, int4, int8, fp8, NVFP4 | TestGoldenRef, TestGoldenCPU on a checkpoint of that form; int4 and int8 as compressed-tensors has them | TestForms: weights stored so |
| LoRA | TestLoRARef, TestLoRACPU (engine/models): logits of the checkpoint with an adapter, beside PEFT's | TestForms, forms lora, lora-tp2, lora-pp2 and lora-awq |
| TP, PP | TestGoldenRanks, TestGoldenRanksCPU (engine/models): logits of the checkpoint on two ranks, and on two stages. Ranks are devices of one process here; processes are tested by tests/clients and the script cuda_ranks | TestForms: the second of two ranks, the second of two stages |
| pooling | TestPooling, TestPoolingCPU (engine): the last row and the mean, in batches, chunks and with prefixes | TestForms, form pooling |
| twins | TestFamilies, TestFamiliesCPU (engine): chunks, batches, prefixes, preemption and n-gram proposals change no token | |
| CUDA | TestFamiliesCUDA (engine), on the emulated driver: tokens of ref | TestForms on an H100 |
| calls | the parser of tool calls that a published template selects: TestParsersOf; its format: TestParseOfRender (appliance/chat/dialect) | |

`

// pageForms are the columns of the page that TestForms has, in order.
var pageForms = []struct{ title, form string }{{"AWQ", "awq"}, {"GPTQ", "gptq"}, {"int4", "int4"}, {"int8", "int8"}, {"fp8", "fp8"}, {"NVFP4", "nvfp4"}, {"LoRA", "lora"}, {"TP", "tp2"}, {"PP", "pp2"}, {"pooling", "pooling"}}

// ggufAs has the architectures whose GGUF files are those of another one.
var ggufAs = map[string]string{
	"InternLM3ForCausalLM":                  "LlamaForCausalLM",
	"GraniteMoeHybridForCausalLM":           "GraniteForCausalLM", // models of attention alone
	"Llama4ForConditionalGeneration":        "Llama4ForCausalLM",
	"Mistral3ForConditionalGeneration":      "Ministral3ForCausalLM",
	"Gemma3ForConditionalGeneration":        "Gemma3ForCausalLM",
	"Gemma4ForConditionalGeneration":        "Gemma4ForCausalLM",
	"Gemma4UnifiedForConditionalGeneration": "Gemma4ForCausalLM",
	"Qwen3_5ForConditionalGeneration":       "Qwen3_5ForCausalLM",
	"Qwen3_5MoeForConditionalGeneration":    "Qwen3_5MoeForCausalLM",
}

// TestModelsPage generates docs/models.md and compares it with the file.
func TestModelsPage(t *testing.T) {
	forms, refused, refusals := readForms(t)
	runs := recordedRuns(t)
	gguf := map[string]bool{}
	for _, line := range linesOf(t, "../../engine/checkpoint/testdata/gguf_architectures.txt") {
		if _, name, ok := strings.Cut(line, " "); ok {
			gguf[name] = true
		}
	}
	var b strings.Builder
	b.WriteString(modelsPreface + "| architecture | safetensors | GGUF |")
	for _, f := range pageForms {
		b.WriteString(" " + f.title + " |")
	}
	b.WriteString(" twins | CPU | CUDA | calls | recorded checkpoints |\n" + strings.Repeat("|---", len(pageForms)+8) + "|\n")
	for _, family := range forms {
		arch, has, run := family.architecture, family.forms, runs[family.architecture]
		mark := func(computed, planned bool, form string) {
			switch {
			case computed:
				b.WriteString(" ● |")
			case planned:
				b.WriteString(" ○ |")
			case refused[arch+" "+form]:
				b.WriteString(" ✕ |")
			default:
				b.WriteString(" – |")
			}
		}
		fmt.Fprintf(&b, "| %s |", arch)
		mark(run.kinds["safetensors"], has["plain"] != "", "plain")
		if as := ggufAs[arch]; as != "" && gguf[as] {
			fmt.Fprintf(&b, " as %s |", as)
		} else {
			mark(run.kinds["gguf"], gguf[arch], "gguf")
		}
		for _, f := range pageForms {
			mark(run.kinds[f.form] || f.form == "pooling" && run.names != nil, has[f.form] != "", f.form)
		}
		recorded := run.names != nil
		mark(recorded, false, "twins")
		for _, on := range []string{"cpu", "cuda"} {
			runs := strings.Contains(has["plain"], on)
			mark(recorded && runs, runs, "plain")
		}
		fmt.Fprintf(&b, " %s | %s |\n", strings.Join(callParsers(t, arch), ", "), strings.Join(run.names, ", "))
	}
	b.WriteString("\n## Refusals\n\n| architecture | forms | why |\n|---|---|---|\n" + refusals)
	goldentest.ComparePage(t, "../..", "models.md", b.String())
}

// builtForms are the forms of an architecture that TestForms has built, with the layouts that run each.
type builtForms struct {
	architecture string
	forms        map[string]string
}

// readForms reads what TestForms has written: what is built, which "architecture form" is refused, and
// the rows of the table of refusals.
func readForms(t *testing.T) (list []builtForms, refused map[string]bool, rows string) {
	t.Helper()
	refused = map[string]bool{}
	var keys []string
	of := map[string][]string{} // forms and reason → architectures
	for _, line := range linesOf(t, "../../engine/models/testdata/forms.txt") {
		if head, why, ok := strings.Cut(line, ": "); ok {
			arch, names, _ := strings.Cut(head, " ")
			for _, f := range strings.Split(names, ",") {
				refused[arch+" "+f] = true
			}
			key := fmt.Sprintf("%s | %s", strings.ReplaceAll(names, ",", ", "), why)
			if of[key] == nil {
				keys = append(keys, key)
			}
			of[key] = append(of[key], arch)
			continue
		}
		words := strings.Fields(line)
		if len(words) == 0 {
			continue
		}
		f := builtForms{words[0], map[string]string{}}
		for _, w := range words[1:] {
			name, on, _ := strings.Cut(w, "=")
			f.forms[name] = on
		}
		list = append(list, f)
	}
	for _, k := range keys {
		rows += fmt.Sprintf("| %s | %s |\n", strings.Join(of[k], ", "), k)
	}
	return list, refused, rows
}

// recordedRun is what was recorded of an architecture: the checkpoints, and the kinds of their files
// and weights.
type recordedRun struct {
	names []string
	kinds map[string]bool
}

func recordedRuns(t *testing.T) map[string]recordedRun {
	t.Helper()
	const dir = "../../engine/models/testdata"
	names, err := enginetest.Recorded(dir + "/golden")
	if err != nil {
		t.Fatal(err)
	}
	ranks := map[string][]string{}
	for _, line := range linesOf(t, dir+"/ranks.txt") {
		if name, forms, ok := strings.Cut(line, " "); ok {
			ranks[name] = strings.Fields(forms)
		}
	}
	out := map[string]recordedRun{}
	for _, name := range names {
		g, err := enginetest.ReadGolden(filepath.Join(dir, "golden", name+".safetensors"))
		if err != nil {
			t.Fatal(err)
		}
		r := out[g.Facts.Architecture]
		if r.kinds == nil {
			r.kinds = map[string]bool{}
		}
		for _, k := range append(kindsOf(t, filepath.Join(dir, strings.TrimSuffix(name, "-x8"))), ranks[name]...) {
			r.kinds[k] = true
		}
		r.names = append(r.names, name)
		out[g.Facts.Architecture] = r
	}
	return out
}

// kindsOf returns the kind of a checkpoint's file and, if it is quantized, that of its weights.
func kindsOf(t *testing.T, dir string) []string {
	t.Helper()
	if _, err := os.Stat(filepath.Join(dir, "model.gguf")); err == nil {
		return []string{"gguf"}
	}
	data, err := os.ReadFile(filepath.Join(dir, "config.json"))
	if err != nil {
		t.Fatal(err)
	}
	var c struct {
		Quantization *struct {
			Method string `json:"quant_method"`
			Groups map[string]struct {
				Weights struct {
					Bits int    `json:"num_bits"`
					Type string `json:"type"`
				} `json:"weights"`
			} `json:"config_groups"`
		} `json:"quantization_config"`
	}
	if err := json.Unmarshal(data, &c); err != nil {
		t.Fatalf("%s: %v", dir, err)
	}
	out := []string{"safetensors"}
	if adapters, _ := filepath.Glob(filepath.Join(filepath.Dir(dir), "lora", filepath.Base(dir)+"@*")); len(adapters) > 0 {
		out = append(out, "lora")
	}
	if c.Quantization == nil {
		return out
	}
	for _, g := range c.Quantization.Groups {
		kind := fmt.Sprint(g.Weights.Type, g.Weights.Bits)
		return append(out, strings.NewReplacer("float8", "fp8", "float4", "nvfp4").Replace(kind))
	}
	return append(out, c.Quantization.Method)
}

// callParsers returns the parsers of tool calls that the templates of TestParsersOf select for an
// architecture. Each is a listed dialect.
func callParsers(t *testing.T, architecture string) []string {
	t.Helper()
	var out []string
	for _, c := range parserCases {
		if p := c.want.ToolCall; c.architecture == architecture && p != "" && !slices.Contains(out, p) {
			if err := dialect.Check("", p); err != nil && p != "openai" {
				t.Errorf("%s: %v", architecture, err)
			}
			out = append(out, p)
		}
	}
	slices.Sort(out)
	return out
}

// linesOf returns the lines of a file.
func linesOf(t *testing.T, path string) []string {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return strings.Split(strings.TrimSpace(string(data)), "\n")
}
