package starter

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unicode/utf8"

	"vapp.dev/appliance/hub"
	"vapp.dev/schema"
)

// read reads the text as the profile in memory that it is made for.
func read(t *testing.T, p Profile) *schema.Profile {
	t.Helper()
	r := schema.Input{Path: "made", Text: p.Text()}.Read()
	if r.Err != nil {
		t.Fatalf("%v\n%s", r.Err, p.Text())
	}
	return r.Profile
}

// TestText checks the text for each kind of source.
func TestText(t *testing.T) {
	for _, c := range []struct {
		s                    Source
		name, served, source string
	}{
		{Source{Kind: File, Arg: "m/x.Q4.GGUF", Model: "/m/x.Q4.GGUF"}, "x.Q4", "x.Q4", "/m/x.Q4.GGUF"},
		{Source{Kind: Folder, Arg: "my model/", Model: "/my model"}, "my-model", "my-model", "/my model"},
		{Source{Kind: Hub, Arg: "a/b", Model: "a/b", Repo: "a/b"}, "b", "a/b", "a/b"},
		{Source{Kind: File, Arg: "m/x.Q4-00001-of-00002.gguf", Model: "/m/x.Q4-00001-of-00002.gguf"}, "x.Q4", "x.Q4", "/m/x.Q4-00001-of-00002.gguf"},
		{Source{Kind: Hub, Arg: "a/b:c/d.gguf", Model: "a/b:c/d.gguf", Repo: "a/b", HubFile: "c/d.gguf"}, "d", "a/b", "a/b:c/d.gguf"},
		{Source{Kind: Folder, Arg: "/", Model: "/"}, "model", "model", "/"},
		{Source{Kind: Folder, Arg: "模型", Model: "/模型"}, "model", "model", "/模型"},
	} {
		p := read(t, Profile{Source: c.s, Fields: ForDevices()})
		if p.Name != c.name || p.Serve.ServedModelName[0] != c.served || p.Model.Source != c.source {
			t.Errorf("%+v: %q %q %q", c.s, p.Name, p.Serve.ServedModelName, p.Model.Source)
		}
		if p.MaxModelLen != schema.Auto || p.Memory.Utilization != 0.9 {
			t.Errorf("%+v", p)
		}
	}
	pinned := read(t, Profile{Source: Source{Kind: Hub, Arg: "a/b@v1", Model: "a/b", Repo: "a/b", Revision: "v1"}, Package: "profiles"})
	if pinned.Model.Revision != "v1" {
		t.Error(pinned.Model)
	}
}

// hostile are names that would end a string or a comment of CUE.
var hostile = []string{
	`"`, `\`, `x"}, serve: {port: 1}, y: {"`, "a\nserve: port: 1\n", "a\r\nserve: port: 1", `\(1)`, `"""`, "a\u2028serve: port: 1", "a\u0085b", "#\"", "// x", "\t", "}", "\x7f",
}

func TestHostileNames(t *testing.T) {
	for _, name := range hostile {
		s := Source{Kind: Folder, Arg: name, Model: "/models/" + name}
		p := read(t, Profile{Source: s, Fields: []Field{{"maxModelLen", "64", "because of " + name}}})
		if p.Model.Source != s.Model || p.Serve.Port != 8000 || p.MaxModelLen != 64 {
			t.Errorf("%q: %+v", name, p)
		}
	}
}

// FuzzText checks that no name of a model changes anything else in its profile.
func FuzzText(f *testing.F) {
	for _, name := range append(hostile, "a/b:c.gguf@v1", "org/name", "models/x.gguf") {
		f.Add(name)
	}
	f.Fuzz(func(t *testing.T, name string) {
		s := Source{Kind: File, Arg: name, Model: "/" + name}
		if n, ok := hub.ParseName(name); ok {
			s.Kind, s.Repo, s.HubFile, s.Revision = Hub, n.Repo, n.File, n.Revision
			n.Revision = ""
			s.Model = n.String()
		} else if len(name) > 4096 || !utf8.ValidString(name) || strings.ContainsRune(name, 0) {
			t.Skip() // Find refuses these
		}
		p := read(t, Profile{Source: s, Fields: ForDevices()})
		if p.Model.Source != s.Model || p.Model.Revision != s.Revision || p.Serve.Port != 8000 || p.MaxModelLen != schema.Auto || p.Backend != "auto" {
			t.Fatalf("%q: %+v", name, p)
		}
	})
}

func TestFind(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir)
	for name, text := range map[string]string{
		"hf/config.json": "{}", "one/m.gguf": "GGUF", "two/m-00001-of-00002.gguf": "GGUF", "two/m-00002-of-00002.gguf": "GGUF", "two/mmproj.gguf": "GGUF", "p.cue": "", "fleet/p.cue": "", "fleet/policy.cue": "", "noext": "GGUF\x03", "org/name/config.json": "{}",
	} {
		if err := os.MkdirAll(filepath.Join(dir, filepath.Dir(name)), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	here, err := filepath.Abs(".")
	if err != nil {
		t.Fatal(err)
	}
	for arg, want := range map[string]Source{
		"hf":                      {Kind: Folder, Model: filepath.Join(here, "hf")},
		"./hf/":                   {Kind: Folder, Model: filepath.Join(here, "hf")},
		"one":                     {Kind: File, Model: filepath.Join(here, "one", "m.gguf")},
		"two":                     {Kind: File, Model: filepath.Join(here, "two", "m-00001-of-00002.gguf")},
		"one/m.gguf":              {Kind: File, Model: filepath.Join(here, "one", "m.gguf")},
		"noext":                   {Kind: File, Model: filepath.Join(here, "noext")},
		"p.cue":                   {Kind: ProfileFile},
		"fleet":                   {Kind: ProfileFile},
		"org/name":                {Kind: Folder, Model: filepath.Join(here, "org", "name")},
		"org/other":               {Kind: Hub, Model: "org/other", Repo: "org/other"},
		"org/other@v1":            {Kind: Hub, Model: "org/other", Repo: "org/other", Revision: "v1"},
		"org/other:a/b.gguf@main": {Kind: Hub, Model: "org/other:a/b.gguf", Repo: "org/other", HubFile: "a/b.gguf", Revision: "main"},
		"qwen3-8b":                {Kind: Hub, Model: "Qwen/Qwen3-8B", Repo: "Qwen/Qwen3-8B"},
		"llama-3.2-1b":            {Kind: Hub, Model: "meta-llama/Llama-3.2-1B", Repo: "meta-llama/Llama-3.2-1B"},
	} {
		want.Arg = arg
		if got, err := Find(arg); err != nil || got != want {
			t.Errorf("%s: %+v, %v, want %+v", arg, got, err, want)
		}
	}
	for _, arg := range []string{"", "a\x00b", "a\xff", "x.cue", "x.gguf", "/abs/x", "./x", "~/x", "a/b/c", "qwen9", "org/name:x.bin", "-"} {
		if got, err := Find(arg); err == nil || strings.Contains(err.Error(), "\n") {
			t.Errorf("%q: %+v, %v", arg, got, err)
		}
	}
}

// parserCases are pieces of chat templates and the parsers of what they write. docs/models.md has the
// parsers of calls of each architecture.
var parserCases = []struct {
	architecture, template string
	want                   Parsers
}{
	{"GptOssForCausalLM", "", Parsers{"openai_gptoss", "openai"}},
	{"Qwen3ForCausalLM", "", Parsers{"qwen3", "hermes"}},
	{"Qwen3ForCausalLM", "{{ messages }}", Parsers{}},
	{"Qwen3ForCausalLM", `<tool_call>\n{\"name\": <n>, \"arguments\": <a>}</tool_call> {%- if enable_thinking is false %}<think>`, Parsers{"qwen3", "hermes"}},
	{"Qwen2ForCausalLM", `<tool_call>{"name": "arguments"}`, Parsers{"", "hermes"}},
	{"Qwen2ForCausalLM", "<｜Assistant｜> content.split('</think>')", Parsers{"deepseek_r1", ""}},
	{"GraniteForCausalLM", "<|start_of_role|>{{ role }} <|tool_call|>", Parsers{"", "granite"}},
	{"InternLM2ForCausalLM", "<|action_start|><|plugin|>", Parsers{"", "internlm"}},
	{"Glm4MoeForCausalLM", "[gMASK]<sop> <think> enable_thinking", Parsers{"glm45", ""}},
	{"SeedOssForCausalLM", "<seed:think> <seed:tool_call> <function=", Parsers{"seed_oss", "seed_oss"}},
	{"MistralForCausalLM", "[TOOL_CALLS]", Parsers{"", "mistral"}},
	{"LlamaForCausalLM", `Environment: ipython "parameters": `, Parsers{"", "llama3_json"}},
	{"Glm4MoeForCausalLM", "[gMASK]<sop> <think> {{ '<tool_call>' + tc.name }} <arg_key>{{ k }}</arg_key> <arg_value>{{ v }}</arg_value>", Parsers{"glm45", "glm45"}},
	{"MiniMaxM2ForCausalLM", `<minimax:tool_call> '<invoke name="' '<think>'`, Parsers{"minimax_m2", "minimax_m2"}},
	{"DeepseekV3ForCausalLM", "'<｜tool▁call▁begin｜>' '<｜tool▁sep｜>' '\\n```json\\n' <｜Assistant｜>", Parsers{"", "deepseek_v3"}},
	{"DeepseekV3ForCausalLM", "{% if not thinking is defined %} '<｜Assistant｜></think>' '<｜tool▁call▁begin｜>'", Parsers{"deepseek_v3", "deepseek_v31"}},
	{"KimiK2ForCausalLM", "<|tool_calls_section_begin|>", Parsers{"", "kimi_k2"}},
	{"Ernie4_5_MoeForCausalLM", "'<think>\\n' content.split('</think>') '<response>\\n' '</response>\\n' '<tool_call>\\n' '{\"name\": \"' '\", \"arguments\": '", Parsers{"ernie45", "ernie45"}},
	{"Olmo3ForCausalLM", "'<functions>' + (tools | tojson) + '</functions>' '<function_calls>' + function_calls + '</function_calls>'", Parsers{"", "olmo3"}},
	{"Olmo3ForCausalLM", "'<functions></functions>' '<function_calls>' '<|im_start|>assistant\\n<think>'", Parsers{"olmo3", "olmo3"}},
	{"Llama4ForConditionalGeneration", "'<|header_start|>ipython<|header_end|>' 'in the format of [func_name1(params_name1=params_value1, params_name2=params_value2...), func_name2(params)]'", Parsers{"", "llama4_pythonic"}},
	{"Llama4ForConditionalGeneration", "'<|header_start|>ipython<|header_end|>' '\"parameters\": '", Parsers{"", "llama4_json"}},
	{"LlamaForCausalLM", "'<|start_header_id|>ipython' 'in the format of [func_name1(params_name1=params_value1)]'", Parsers{"", "pythonic"}},
	{"LlamaForCausalLM", "", Parsers{}},
}

func TestParsersOf(t *testing.T) {
	for _, c := range parserCases {
		if got := ParsersOf(c.architecture, c.template); got != c.want {
			t.Errorf("%s %q: %+v, want %+v", c.architecture, c.template, got, c.want)
		}
	}
}
