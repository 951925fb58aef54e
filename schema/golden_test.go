package schema

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/txtar"

	"vapp.dev/internal/goldentest"
)

// minimal is the profile that want.diff is compared with.
const minimal = `import "vapp.dev/schema"

schema.#Profile & {
	name: "minimal"
	model: source: "org/model"
}
`

// TestGolden loads profile.cue of each archive, or the folder if there is no such file.
// want.json is the resolved profile, want.diff its difference from the minimal one, want.err
// the error. -update writes them.
func TestGolden(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txtar")
	if err != nil || len(files) == 0 {
		t.Fatal("no goldens", err)
	}
	base := parse(t, minimal)
	for _, file := range files {
		file, err := filepath.Abs(file)
		if err != nil {
			t.Fatal(err)
		}
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txtar"), func(t *testing.T) {
			archive, err := txtar.ParseFile(file)
			if err != nil {
				t.Fatal(err)
			}
			p, loadErr := Load(unpack(t, archive))
			for i, f := range archive.Files {
				if !strings.HasPrefix(f.Name, "want.") {
					continue
				}
				archive.Files[i].Data = []byte(outcome(f.Name, base, p, loadErr))
			}
			goldentest.CompareArchive(t, file, archive)
		})
	}
}

// unpack writes the input files into a new working directory and returns the path to load.
func unpack(t *testing.T, archive *txtar.Archive) string {
	t.Helper()
	t.Chdir(t.TempDir())
	path, wants := ".", 0
	for _, f := range archive.Files {
		if strings.HasPrefix(f.Name, "want.") {
			wants++
			continue
		}
		if f.Name == "profile.cue" || path == "." && strings.HasSuffix(f.Name, "/profile.cue") {
			path = f.Name
		}
		if err := os.MkdirAll(filepath.Dir(f.Name), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(f.Name, f.Data, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if wants != 1 {
		t.Fatalf("%d files named want.json, want.diff or want.err; one is needed", wants)
	}
	return path
}

// outcome returns the content of a want file for the result of Load.
func outcome(want string, base, p *Profile, err error) string {
	if err != nil {
		return err.Error() + "\n"
	}
	if want == "want.diff" {
		return Diff(base, p).String() + "\n"
	}
	text, err := json.MarshalIndent(p, "", "  ")
	if err != nil {
		return err.Error()
	}
	return string(text) + "\n"
}

// parse returns the profile and fails the test if Parse does.
func parse(t testing.TB, text string) *Profile {
	t.Helper()
	p, err := Parse(filepath.Join(t.TempDir(), "profile.cue"), []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return p
}
