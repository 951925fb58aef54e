package plan_test

import (
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/rogpeppe/go-internal/txtar"

	"vapp.dev/appliance/plan"
	"vapp.dev/engine"
	"vapp.dev/engine/backend"
	"vapp.dev/engine/backend/cuda"
	"vapp.dev/engine/backend/devices"
	"vapp.dev/engine/backend/ref"
	"vapp.dev/internal/goldentest"
	"vapp.dev/schema"
)

// TestGolden plans the inputs of each file and compares the output. The lines before the first section
// are "key: value": model (smol, toy or a name of the catalogue), memory, cores, device (a GPU of the
// catalogue) and shipped (a profile of the repository). Then follow profile.cue and the expected
// output.
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
	i, err := described(t, string(a.Comment), sections["profile.cue"])
	if got["text"] = says(t, i); err != nil {
		got["text"] = err.Error() + "\n"
	}
	for n, line := range strings.Split(got["text"], "\n") {
		if w := utf8.RuneCountInString(line); w > plan.TextWidth && !strings.Contains(line, ".cue:") {
			t.Errorf("line %d has %d columns", n+1, w)
		}
	}
	for name := range sections {
		if ask, ok := strings.CutPrefix(name, "why-not "); ok {
			got[name] = whyNot(t, i, ask)
		}
		if item, ok := strings.CutPrefix(name, "explain "); ok {
			if e, err := made(t, i).Explain(item); err != nil {
				got[name] = err.Error() + "\n"
			} else {
				got[name] = e.String()
			}
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
		if text, ok := got[f.Name]; ok {
			a.Files[k].Data = []byte(text)
		}
	}
	goldentest.CompareArchive(t, file, a)
}

func whyNot(t *testing.T, i plan.Inputs, ask string) string {
	g, err := plan.ParseGoal(ask)
	if err != nil {
		return err.Error() + "\n"
	}
	a, err := plan.WhyNot(i, g)
	if err != nil {
		return err.Error() + "\n"
	}
	return a.String()
}

// built returns the inputs with the model built as the profile asks. The error is that of a family
// that does not support it.
func built(i plan.Inputs) (plan.Inputs, error) {
	try := func(s engine.Source) error {
		m, err := i.Model.With(s.Build)
		if err == nil {
			i.Model = m
		}
		return err
	}
	s, was := plan.Source(i.Profile, ""), i.Model
	if err := try(s); err != nil {
		err = plan.LocateBuildError(i.Profile, s, err, try)
		i.Model = was
		return i, err
	}
	return i, nil
}

// catalogued returns a model of the catalogue.
func catalogued(t testing.TB, name string) *engine.Model {
	t.Helper()
	m, err := engine.Inspect(engine.Source{Name: name, Format: "auto"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { m.Close() })
	return m
}

// described returns the inputs described by the lines before the first section.
func described(t *testing.T, lines, text string) (plan.Inputs, error) {
	facts := server
	var opener backend.Opener = ref.Opener{}
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
		case "device":
			d, err := devices.Find(value)
			if err != nil {
				t.Fatal(err)
			}
			opener, facts = cuda.Opener{}, d.Facts("cuda")
		case "cores":
			facts.Cores, _ = strconv.Atoi(value)
		case "shipped":
			p = shipped(t, value)
		default:
			t.Fatalf("unknown key %q", key)
		}
	}
	models := map[string]func(testing.TB) *engine.Model{"llama-3.2-1b": llama1B, "smol": smol, "toy": toy}
	load, ok := models[m]
	if !ok {
		load = func(t testing.TB) *engine.Model { return catalogued(t, m) }
	}
	model := load(t)
	if p == nil {
		p = profile(t, "profile.cue", text)
	}
	i := in(p, model, facts)
	i.Opener = opener
	return built(i)
}
