package importer

import (
	"errors"
	"path/filepath"
	"strings"
	"testing"

	cueparser "cuelang.org/go/cue/parser"
	"github.com/rogpeppe/go-internal/txtar"
)

// FuzzParse reads any bytes as a line and as a file, up to the CUE text. It checks that nothing
// panics, that errors have the right type and one line per problem, and that the output is CUE. The
// goldens check the output against the schema.
func FuzzParse(f *testing.F) {
	files, err := filepath.Glob("testdata/*.txtar")
	if err != nil {
		f.Fatal(err)
	}
	for _, file := range files {
		archive, err := txtar.ParseFile(file)
		if err != nil {
			f.Fatal(err)
		}
		for _, in := range archive.Files {
			if !strings.Contains(in.Name, "/want.") {
				f.Add(in.Data)
			}
		}
	}
	f.Add([]byte("$(${x:-\"`')}"))
	f.Add([]byte("a=$a$a a=$a$a vllm serve $a"))
	f.Fuzz(func(t *testing.T, data []byte) {
		text, err := normalize("in", data)
		if err != nil {
			typed(t, err)
			return
		}
		single := !strings.Contains(text, "\n")
		c, err := commandOfScript(text, source{single: single})
		toCUE(t, c, err)
		switch formOf(text) {
		case formDockerfile:
			c, err = commandOfDockerfile(text, source{name: "in"})
		case formYAML:
			c, err = commandOfManifest(text, source{name: "in"}, "")
		default:
			return
		}
		toCUE(t, c, err)
	})
}

// FuzzModelfile reads any bytes as a Modelfile, up to the CUE text.
func FuzzModelfile(f *testing.F) {
	f.Add([]byte("FROM ./x.gguf\nPARAMETER stop \"a\"\nSYSTEM \"\"\"a\nb\"\"\"\n"))
	f.Add([]byte("from hf.co/a/b:Q8\nPARAMETER num_ctx 0\nTEMPLATE \"\"\"x"))
	f.Fuzz(func(t *testing.T, data []byte) {
		text, err := normalize("in", data)
		if err != nil {
			typed(t, err)
			return
		}
		isModelfile(text)
		c, err := commandOfModelfile(text, source{name: "in"})
		toCUE(t, c, err)
	})
}

// FuzzPrograms reads any line as arguments of each program.
func FuzzPrograms(f *testing.F) {
	f.Add("-m x.gguf -c 8192 -np 4 -fa on -ngl 99 --hf-file x --alias a,b")
	f.Add("-hf a/b:c --hf-repo : --hf-file")
	f.Add("--model-path x --cuda-graph-bs 1 2 --chunked-prefill-size -1 --tp")
	f.Add("--model-id x --quantize eetq -p 80 --json-output")
	f.Add("hf.co/a/b --keepalive 5m OLLAMA_HOST=:1 --num-ctx 0")
	f.Fuzz(func(t *testing.T, line string) {
		text, err := normalize("", []byte(line))
		if err != nil {
			typed(t, err)
			return
		}
		for _, start := range []string{"llama-server", "llama-cli", "ollama run", "python -m sglang.launch_server", "text-generation-launcher"} {
			c, err := commandOfScript(start+" "+text, source{single: true})
			toCUE(t, c, err)
		}
	})
}

// toCUE converts a command to the CUE text.
func toCUE(t *testing.T, c *command, err error) {
	if err != nil {
		typed(t, err)
		return
	}
	d := newDraft(c)
	d.carry(c, strings.NewReader("port: 1"))
	if d.finish(); len(d.problems) > 0 {
		typed(t, d.failed())
		return
	}
	out, err := d.render()
	if err != nil {
		t.Fatalf("no CUE: %v", err)
	}
	if _, err := cueparser.ParseFile("out.cue", out); err != nil {
		t.Fatalf("no CUE: %v\n%s", err, out)
	}
}

func typed(t *testing.T, err error) {
	var e *Error
	if !errors.As(err, &e) || len(e.List) == 0 {
		t.Fatalf("an error without a type: %v", err)
	}
	for _, p := range e.List {
		if s := p.String(); s == "" || strings.ContainsAny(s, "\n\r") || p.Kind == "" {
			t.Fatalf("no line: %q", s)
		}
	}
}

// TestBounded checks that large inputs are refused.
func TestBounded(t *testing.T) {
	double := strings.Repeat("a=$a$a\n", 64)
	for name, in := range map[string]string{
		"bytes":     strings.Repeat("x", maxBytes+1),
		"word":      "vllm serve " + strings.Repeat("x", maxWord+1),
		"words":     "vllm serve " + strings.Repeat("x ", maxWords+1),
		"doubling":  "a=xx\n" + double + "vllm serve $a",
		"shells":    strings.Repeat("sh -c '", 8) + "vllm" + strings.Repeat("'", 8),
		"variables": strings.Repeat("a=1\n", maxVars+2) + "vllm serve x",
		"nesting":   strings.Repeat("[", 300) + strings.Repeat("]", 300),
		"aliases":   "a: &a [x,x,x,x,x,x,x,x]\nb: &b [*a,*a,*a,*a,*a,*a,*a,*a]\nc: &c [*b,*b,*b,*b,*b,*b,*b,*b]\nd: &d [*c,*c,*c,*c,*c,*c,*c,*c]\ne: &e [*d,*d,*d,*d,*d,*d,*d,*d]\nf: &f [*e,*e,*e,*e,*e,*e,*e,*e]\nimage: vllm\ncommand: [*f,*f,*f,*f,*f,*f,*f,*f]\n",
	} {
		_, err := fileText("in", []byte(in), Options{})
		var e *Error
		if !errors.As(err, &e) {
			t.Errorf("%s: %v", name, err)
		} else if len(err.Error()) > 2000 {
			t.Errorf("%s: a message of %d bytes", name, len(err.Error()))
		}
	}
}
