package schema

import (
	"os"
	"path/filepath"
	"testing"
)

func TestPath(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"cue.mod", "profiles", "models"} {
		if err := os.Mkdir(filepath.Join(dir, name), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	work := t.TempDir()
	t.Chdir(work)
	for _, f := range []string{filepath.Join(dir, "models", "a"), filepath.Join(work, "b")} {
		if err := os.WriteFile(f, nil, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	p := &Profile{origin: origin{file: filepath.Join(dir, "profiles", "p.cue"), root: dir}}
	for text, want := range map[string]string{
		"/abs/x":   "/abs/x",
		"./x":      filepath.Join(dir, "profiles", "x"),
		"../x":     filepath.Join(dir, "x"),
		"models/a": filepath.Join(dir, "models", "a"),
		"b":        filepath.Join(work, "b"),
		"org/name": filepath.Join(dir, "org", "name"),
	} {
		if got := p.Path(text); got != want {
			t.Errorf("Path(%q) = %s, want %s", text, got, want)
		}
	}
}
