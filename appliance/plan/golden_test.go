package plan_test

import (
	"flag"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	"github.com/rogpeppe/go-internal/txtar"

	"vapp.dev/appliance/plan"
	"vapp.dev/engine"
	"vapp.dev/schema"
)

var rewrite = flag.Bool("rewrite", false, "write what is printed into testdata/*.txtar")

// TestGolden plans what each file describes: lines of "key: value" (model:
// llama-3.2-1b, smol or toy; memory, cores; shipped: a profile of the
// repository), profile.cue, and what is printed.
func TestGolden(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txtar")
	if err != nil || len(files) == 0 {
		t.Fatal("no goldens", err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txtar"), func(t *testing.T) {
			golden(t, file)
		})
	}
}

func golden(t *testing.T, file string) {
	file, err := filepath.Abs(file)
	if err != nil {
		t.Fatal(err)
	}
	a, err := txtar.ParseFile(file)
	if err != nil {
		t.Fatal(err)
	}
	sections := map[string]string{}
	for _, f := range a.Files {
		sections[f.Name] = string(f.Data)
	}
	got := map[string]string{}
	i := described(t, string(a.Comment), sections["profile.cue"])
	got["text"] = says(t, i)
	for n, line := range strings.Split(got["text"], "\n") {
		if w := utf8.RuneCountInString(line); w > plan.TextWidth && !strings.Contains(line, ".cue:") {
			t.Errorf("line %d has %d columns", n+1, w)
		}
	}
	if _, ok := sections["json"]; ok {
		var b strings.Builder
		if err := made(t, i).JSON(&b); err != nil {
			t.Fatal(err)
		}
		got["json"] = b.String()
	}
	for k, f := range a.Files {
		want, ok := got[f.Name]
		if !ok {
			continue
		}
		if *rewrite {
			a.Files[k].Data = []byte(want)
		} else if d := cmp.Diff(string(f.Data), want); d != "" {
			t.Errorf("%s differs; -rewrite writes it:\n%s", f.Name, d)
		}
	}
	if *rewrite {
		if err := os.WriteFile(file, txtar.Format(a), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// described reads the lines before the first section.
func described(t *testing.T, lines, text string) plan.Inputs {
	facts := server
	var p *schema.Profile
	m := ""
	for _, line := range strings.Split(lines, "\n") {
		key, value, ok := strings.Cut(line, ": ")
		if !ok || strings.HasPrefix(line, "#") {
			continue
		}
		switch key {
		case "model":
			m = value
		case "memory":
			n, err := schema.ParseBytes(value)
			if err != nil {
				t.Fatal(err)
			}
			facts.TotalBytes = int64(n)
		case "cores":
			facts.Cores, _ = strconv.Atoi(value)
		case "shipped":
			p = shipped(t, value)
		default:
			t.Fatalf("unknown key %q", key)
		}
	}
	models := map[string]func(testing.TB) *engine.Model{"llama-3.2-1b": llama1B, "smol": smol, "toy": toy}
	model := models[m](t)
	if p == nil {
		p = profile(t, "profile.cue", text)
	}
	return in(p, model, facts)
}
