package schema

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestForeign loads files that are no profiles.
func TestForeign(t *testing.T) {
	t.Chdir(t.TempDir())
	for name, c := range map[string]struct{ text, want string }{
		"a.gguf":          {"GGUF\x03\x00\x00\x00", "a.gguf: is a GGUF model, not a profile: vapp plan a.gguf plans it; vapp init NAME --model a.gguf writes a profile"},
		"b.cue":           {"GGUF\x03\x00\x00\x00" + strings.Repeat("\x01", maxBytes), "b.cue: is a GGUF model, not a profile: vapp plan b.cue plans it; vapp init NAME --model b.cue writes a profile"},
		"m/x.safetensors": {"\x02\x00\x00\x00\x00\x00\x00\x00{}", "m/x.safetensors: is safetensors weights, not a profile: vapp plan m plans it; vapp init NAME --model m writes a profile"},
		"m/config.json":   {`{"a": 1}`, "m/config.json: is a file of a model, not a profile: vapp plan m plans it; vapp init NAME --model m writes a profile"},
		"x.lock.json":     {`{"lock_version": 1}`, "x.lock.json: is a lock file, not a profile: name x.cue"},
		"p.json":          {`{"name": "a"}`, "p.json: is JSON, not a profile, which is a .cue file: write it as schema.#Profile & {…}; vapp init writes a first one"},
		"z.zip":           {"PK\x03\x04\x14", `z.zip: starts with "PK": a zip archive, neither a profile (a .cue file) nor a model (a GGUF file or a folder with safetensors)`},
		"p.yaml":          {"name: a\nmodel:\n  source: b\n", "p.yaml: is a file of type .yaml, not a profile, which is a .cue file; vapp init writes a first one"},
		"pod.yaml":        {"# a pod\napiVersion: v1\n", "pod.yaml: is a YAML manifest, not a profile, which is a .cue file; vapp import pod.yaml writes one, if it starts vLLM"},
		"Modelfile":       {"FROM llama3.2\n", "Modelfile: is a Modelfile of Ollama, not a profile, which is a .cue file; vapp import Modelfile writes one"},
		"Dockerfile":      {"FROM vllm/vllm-openai\n", "Dockerfile: is a Dockerfile, not a profile, which is a .cue file; vapp import Dockerfile writes one"},
		"noext":           {"name: 1\n", "noext: is text without .cue in its name; rename it to noext.cue if it is a profile; vapp init writes a first one"},
		"e.cue":           {"", "e.cue: is empty; vapp init writes a first profile"},
		"n.cue":           {"name: \x00\x01", "n.cue: is binary data of an unknown kind, neither a profile (a .cue file) nor a model (a GGUF file or a folder with safetensors)"},
	} {
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, []byte(c.text), 0o644); err != nil {
			t.Fatal(err)
		}
		_, err := Load(name)
		var own *Error
		if !errors.As(err, &own) || own.Kind() != Syntax || err.Error() != c.want {
			t.Errorf("got %v\nwant %s", err, c.want)
		}
	}
	if _, err := Load("m"); err == nil || err.Error() != "m: no profile (*.cue) in this folder; it holds a model: vapp plan m plans it; vapp init NAME --model m writes a profile" {
		t.Error(err)
	}
	// Text that may be CUE is the parser's: its errors have a place.
	for name, text := range map[string]string{"u.cue": "name: \"\xff\"\n", "v.cue": "FROM: 1\n", "j.cue": `{"name": 1}`, "w.cue": "kind: 3\n"} {
		if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		if _, err := Load(name); err == nil || !strings.HasPrefix(err.Error(), name+":1:") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// FuzzForeign gives any bytes under names of several kinds: foreign returns nil or one line.
func FuzzForeign(f *testing.F) {
	f.Add("a.gguf", []byte("GGUF"))
	f.Add("p.yaml", []byte("---\nname: a\n"))
	f.Add("x.lock.json", []byte("{\"a\": 1}"))
	f.Add(".lock.json", []byte("{\"a\": 1}"))
	f.Fuzz(func(t *testing.T, name string, data []byte) {
		err := otherKind(name, data)
		var own *Error
		if err != nil && (!errors.As(err, &own) || len(own.List) != 1 || strings.ContainsAny(err.Error(), "\n\x00")) {
			t.Errorf("%q, %q: %q", name, data, err)
		}
	})
}
