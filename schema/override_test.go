package schema

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// overridden reads a profile in a folder with overrides.
func overridden(t *testing.T, files map[string]string, set ...string) (*Profile, error) {
	t.Helper()
	dir := t.TempDir()
	for name, text := range files {
		at := filepath.Join(dir, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(at), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(at, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	in := Input{Path: filepath.Join(dir, "p.cue")}
	for _, s := range set {
		o, err := ParseOverride(s)
		if err != nil {
			t.Fatal(err)
		}
		in.Set = append(in.Set, o)
	}
	r := in.Read()
	return r.Profile, r.Err
}

const plainProfile = `import "vapp.dev/schema"

schema.#Profile & {
	name: "p"
	model: source: "x/y"
	scheduler: maxNumSeqs: 64
	memory: utilization: 0.5
	serve: port: 8000
}
`

func TestOverride(t *testing.T) {
	packaged := map[string]string{
		"cue.mod/module.cue": "module: \"fleet.example\"\nlanguage: version: \"v0.16.0\"\n",
		"base/base.cue":      "package base\n\nBase: {scheduler: maxNumSeqs: 64, memory: utilization: 0.5, serve: apiKeys: [\"a\", \"b\"]}\nSeqs: 9\n",
		"p.cue": `package p

import (
	"vapp.dev/schema"
	"fleet.example/base"
)

_more: {if true {model: dtype: "float32"}}
schema.#Profile & base.Base & _more & {
	name: "p"
	model: source: "x/y"
	maxModelLen: base.Seqs
}
`,
	}
	plain := map[string]string{"p.cue": plainProfile}
	for _, c := range []struct {
		files map[string]string
		set   []string
		good  func(p *Profile) bool
	}{
		{plain, []string{"scheduler.maxNumSeqs=8"}, func(p *Profile) bool { return p.Scheduler.MaxNumSeqs == 8 }},
		{plain, []string{"model.dtype=float16"}, func(p *Profile) bool { return p.Model.Dtype == "float16" }},
		{plain, []string{"serve.host=127.0.0.1", "serve.port=0"}, func(p *Profile) bool { return p.Serve.Host == "127.0.0.1" && p.Serve.Port == 0 }},
		{plain, []string{"maxModelLen=8K"}, func(p *Profile) bool { return p.MaxModelLen == 8192 }},
		{plain, []string{"maxModelLen=4096"}, func(p *Profile) bool { return p.MaxModelLen == 4096 }},
		{plain, []string{"maxModelLen=auto"}, func(p *Profile) bool { return p.MaxModelLen == Auto }},
		{plain, []string{"memory.kvCache=2GiB"}, func(p *Profile) bool { return p.Memory.KVCache == 2<<30 && p.Memory.Utilization == 0 }},
		{plain, []string{"memory.kvCache=2G"}, func(p *Profile) bool { return p.Memory.KVCache == 2<<30 }},
		{plain, []string{"name=5"}, func(p *Profile) bool { return p.Name == "5" }},
		{plain, []string{"name=true"}, func(p *Profile) bool { return p.Name == "true" }},
		{plain, []string{`serve.servedModelName=["a", "b"]`}, func(p *Profile) bool { return len(p.Serve.ServedModelName) == 2 }},
		{plain, []string{"model.source=a/b"}, func(p *Profile) bool { return p.Serve.ServedModelName[0] == "a/b" }},
		{plain, []string{"sampling={temperature: 0}"}, func(p *Profile) bool { return p.Sampling.Temperature != nil && *p.Sampling.Temperature == 0 }},
		{plain, []string{`require.concurrency.">=8"=1K`}, func(p *Profile) bool { return p.Require.Concurrency[">=8"] == 1024 }},
		{packaged, []string{"scheduler.maxNumSeqs=8"}, func(p *Profile) bool { return p.Scheduler.MaxNumSeqs == 8 && p.Memory.Utilization == 0.5 }},
		{packaged, []string{"memory.kvCache=1GiB"}, func(p *Profile) bool { return p.Memory.KVCache == 1<<30 && p.Memory.Utilization == 0 }},
		{packaged, []string{`serve.apiKeys=["c"]`}, func(p *Profile) bool { return len(p.Serve.APIKeys) == 1 }},
		{packaged, []string{"model.dtype=auto"}, func(p *Profile) bool { return p.Model.Dtype == "auto" }},
		{packaged, []string{"maxModelLen=7"}, func(p *Profile) bool { return p.MaxModelLen == 7 }},
	} {
		p, err := overridden(t, c.files, c.set...)
		if err != nil {
			t.Errorf("%v: %v", c.set, err)
		} else if !c.good(p) {
			t.Errorf("%v: not in effect: %+v", c.set, p)
		}
	}
}

func TestOverrideRefused(t *testing.T) {
	for _, c := range []struct{ text, set, want string }{
		{plainProfile, "scheduler.maxNumSeqs=0", `--set scheduler.maxNumSeqs=0: invalid value 0; allowed: an integer >= 1 and <= 65536`},
		{plainProfile, "scheduler.maxNumSeq=4", `--set scheduler.maxNumSeq=4: unknown field; did you mean maxNumSeqs\? allowed: maxNumSeqs, .*`},
		{plainProfile, "shceduler.maxNumSeqs=4", `--set shceduler.maxNumSeqs=4: shceduler: unknown field; did you mean scheduler\? allowed: .*`},
		{plainProfile, "model.dtype=float17", `--set model.dtype=float17: invalid value "float17"; did you mean "float16"\? allowed: .*float16`},
		{plainProfile, "serve.port.x=1", `--set serve.port.x=1: `},
		{plainProfile, "memory.utilization=90", `--set memory.utilization=90: invalid value 90`},
		// Errors of the profile itself keep their positions, behind an override and without one.
		{strings.Replace(plainProfile, "8000", "80000", 1), "scheduler.maxNumSeqs=8", `p.cue:8:15: serve.port: invalid value 80000`},
		{strings.Replace(plainProfile, "8000", "80000", 1), "scheduler.maxNumSeqs=0", `p.cue:8:15: serve.port: invalid value 80000`},
		{strings.Replace(plainProfile, "8000", "80000", 1), "scheduler.maxNumSeqs=0", `--set scheduler.maxNumSeqs=0: invalid value 0`},
	} {
		_, err := overridden(t, map[string]string{"p.cue": c.text}, c.set)
		if err == nil || !matches(c.want, err.Error()) {
			t.Errorf("%s: %v, want %s", c.set, err, c.want)
		}
	}
}

// TestOverrideMends checks that a wrong value of the profile is replaced like any other.
func TestOverrideMends(t *testing.T) {
	p, err := overridden(t, map[string]string{"p.cue": strings.Replace(plainProfile, "8000", "80000", 1)}, "serve.port=1")
	if err != nil || p.Serve.Port != 1 {
		t.Fatal(p, err)
	}
}

// TestOverridePolicy checks that a policy bounds an override.
func TestOverridePolicy(t *testing.T) {
	files := map[string]string{"p.cue": plainProfile, "policy.cue": "scheduler: maxNumSeqs: <=100\n"}
	if _, err := overridden(t, files, "scheduler.maxNumSeqs=64"); err != nil {
		t.Error(err)
	}
	_, err := overridden(t, files, "scheduler.maxNumSeqs=128")
	if err == nil || !matches(`^--set scheduler.maxNumSeqs=128: .*policy.cue`, err.Error()) {
		t.Error(err)
	}
}

func matches(pattern, text string) bool { return regexp.MustCompile(pattern).MatchString(text) }

// FuzzOverride checks that no argument of --set breaks the reader: it is refused in one line, or the
// profile has it, and prints as a text that means the same.
func FuzzOverride(f *testing.F) {
	for _, s := range []string{
		"scheduler.maxNumSeqs=8", "maxModelLen=8K", "serve.host=0.0.0.0", `require.concurrency.">=8"=1K`, `sampling={temperature: 0, topP: 0.5}`,
		`serve.servedModelName=["a","b"]`, "memory.kvCache=1GiB", "name=\"x\"", "a.b.c=1", "serve=5", "#x=1", "_x=1", "=", ".", `""=1`, "name=\\(x)", "name={#a: 1}",
		"serve.apiKeys=[{env: \"X\"}]", "model=_|_", "name=[if true {1}]", "name=a\nb", "cpu=null", "x-y=1", "require.concurrency={\">=1\": 64}", "speculative.numTokens=2",
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		o, err := ParseOverride(text)
		if err != nil {
			if _, ok := err.(*OverrideError); !ok || strings.Contains(err.Error(), "\n") {
				t.Fatalf("%q: %v", text, err)
			}
			return
		}
		in := Input{Path: "p", Text: []byte(plainProfile), Set: []Override{o}}
		r := in.Read()
		if r.Err != nil {
			if _, ok := r.Err.(*Error); !ok {
				t.Fatalf("%q: %v", text, r.Err)
			}
			return
		}
		out, err := in.Format()
		if err != nil {
			t.Fatalf("%q: %v", text, err)
		}
		again := Input{Path: "p", Text: out}.Read()
		if again.Err != nil || again.Profile.Hash() != r.Profile.Hash() {
			t.Fatalf("%q: %v\n%s", text, again.Err, out)
		}
	})
}
