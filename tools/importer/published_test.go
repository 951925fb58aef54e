package importer_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/txtar"

	"vapp.dev/appliance/plan"
	"vapp.dev/engine"
	"vapp.dev/engine/backend/cuda"
	"vapp.dev/engine/backend/devices"
	"vapp.dev/engine/models"
	"vapp.dev/internal/goldentest"
	"vapp.dev/schema"
	"vapp.dev/tools/importer"
)

// TestPublished imports the command lines of published models and plans each profile for an H100 with
// the published config. go test ./tools/importer -run TestPublished -update writes the results.
func TestPublished(t *testing.T) {
	const file = "testdata/published/lines.txtar"
	a, err := txtar.ParseFile(file)
	if err != nil {
		t.Fatal(err)
	}
	data := map[string]string{}
	for _, f := range a.Files {
		data[f.Name] = string(f.Data)
	}
	lines := 0
	for i, f := range a.Files {
		name, ok := strings.CutSuffix(f.Name, "/want")
		if !ok {
			continue
		}
		lines++
		got, err := planned(t, data[name+"/line"], data[name+"/config"])
		if err != nil {
			got = "refused: " + strings.ReplaceAll(err.Error(), "\n", " | ")
		}
		a.Files[i].Data = []byte(got + "\n")
	}
	if lines < 30 {
		t.Errorf("%d lines, want 30 or more", lines)
	}
	goldentest.CompareArchive(t, file, a)
}

// planned imports a line and returns its plan in a few words.
func planned(t *testing.T, line, config string) (string, error) {
	r, err := importer.Args([]string{strings.TrimSpace(line)}, importer.Options{})
	if err != nil {
		return "", err
	}
	dir := t.TempDir()
	path := filepath.Join(dir, "imported.cue")
	if err := os.WriteFile(path, r.Text, 0o600); err != nil {
		t.Fatal(err)
	}
	p, err := schema.Load(path)
	if err != nil {
		return "", short(dir, err)
	}
	s := plan.Source(p, writeConfig(t, dir, config))
	try := func(s engine.Source) error {
		m, err := engine.Inspect(s)
		if err == nil {
			err = m.Close()
		}
		return err
	}
	m, err := engine.Inspect(s)
	if err != nil {
		return "", short(dir, plan.LocateBuildError(p, s, err, try))
	}
	defer m.Close()
	d, err := devices.Find("h100-80g")
	if err != nil {
		t.Fatal(err)
	}
	made, err := plan.Make(plan.Inputs{Profile: p, Model: m, Opener: cuda.Opener{}, Facts: d.Facts("cuda")})
	if err != nil {
		return "", short(dir, err)
	}
	out := fmt.Sprintf("planned: %s, %s of weights, %d tokens", made.Model.Architecture, plan.Size(made.Ledger.Bytes("weights")), made.Options.MaxModelLen)
	if made.Ranks > 1 {
		out += fmt.Sprintf(", on each of %d devices", made.Ranks)
	}
	if len(made.PlanOnly) > 0 {
		out += "; plan-only: " + strings.Join(made.PlanOnly, "; ")
	}
	return out, nil
}

// short returns an error without the path of the test's folder.
func short(dir string, err error) error {
	return fmt.Errorf("%s", strings.ReplaceAll(err.Error(), dir+string(filepath.Separator), ""))
}

// writeConfig writes a config.json from its differences to an entry of the catalogue.
func writeConfig(t *testing.T, dir, differences string) string {
	t.Helper()
	var diff, out map[string]any
	if err := json.Unmarshal([]byte(differences), &diff); err != nil {
		t.Fatalf("%s: %v", differences, err)
	}
	if base, ok := diff["base"].(string); ok {
		c, known, err := models.CatalogueConfig(base)
		if err != nil || !known {
			t.Fatalf("base %s: %v", base, err)
		}
		if err := json.Unmarshal(c.Raw, &out); err != nil {
			t.Fatal(err)
		}
		delete(diff, "base")
	} else {
		out = map[string]any{}
	}
	maps.Copy(out, diff)
	text, err := json.Marshal(out)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "config.json")
	if err := os.WriteFile(path, text, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}
