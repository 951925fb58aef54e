package importer

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/rogpeppe/go-internal/txtar"

	"vapp.dev/internal/goldentest"
	"vapp.dev/schema"
)

// TestGolden imports every case of the archives. NAME/line is one quoted argument, NAME/words one
// word per line, NAME/text the content of standard input, NAME/stdin the input of "--config -".
// NAME/want.cue is the profile, NAME/want.err the error. It checks that every profile loads. go
// test ./tools/importer -update writes the results.
func TestGolden(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txtar")
	if err != nil || len(files) == 0 {
		t.Fatal("no goldens", err)
	}
	good := 0
	for _, file := range files {
		archive, err := txtar.ParseFile(file)
		if err != nil {
			t.Fatal(err)
		}
		data := map[string]string{}
		for _, f := range archive.Files {
			data[f.Name] = string(f.Data)
		}
		for i, f := range archive.Files {
			name, kind, ok := strings.Cut(f.Name, "/want.")
			if !ok {
				continue
			}
			t.Run(strings.TrimSuffix(filepath.Base(file), ".txtar")+"/"+name, func(t *testing.T) {
				got, err := imported(data, name)
				if err == nil {
					good++
					loads(t, got)
				}
				want := string(f.Data)
				if *goldentest.Update {
					archive.Files[i] = rewritten(name, got, err)
					return
				}
				if (err == nil) != (kind == "cue") {
					t.Fatalf("%v\n%s", err, got)
				}
				if err != nil {
					got = []byte(err.Error() + "\n")
				}
				if d := cmp.Diff(want, string(got)); d != "" {
					t.Errorf("-want +got:\n%s", d)
				}
			})
		}
		if *goldentest.Update {
			if err := os.WriteFile(file, txtar.Format(archive), 0o644); err != nil {
				t.Fatal(err)
			}
		}
	}
	if good < 30 {
		t.Errorf("%d command lines become profiles, want 30 or more", good)
	}
}

func rewritten(name string, got []byte, err error) txtar.File {
	if err != nil {
		return txtar.File{Name: name + "/want.err", Data: []byte(err.Error() + "\n")}
	}
	return txtar.File{Name: name + "/want.cue", Data: got}
}

// imported imports the case name.
func imported(data map[string]string, name string) ([]byte, error) {
	o := Options{}
	if in, ok := data[name+"/stdin"]; ok {
		o.Stdin = strings.NewReader(in)
	}
	if _, container, ok := strings.Cut(name, "@"); ok {
		o.Container = container
	}
	if line, ok := data[name+"/line"]; ok {
		return argsText([]string{strings.TrimSuffix(line, "\n")}, o)
	}
	if words, ok := data[name+"/words"]; ok {
		return argsText(strings.Split(strings.TrimSuffix(words, "\n"), "\n"), o)
	}
	if text, ok := data[name+"/text"]; ok {
		return fileText("stdin", []byte(text), o)
	}
	return nil, errors.New(name + ": no input")
}

// loads checks a profile by the schema, as vapp vet does.
func loads(t *testing.T, text []byte) *schema.Profile {
	t.Helper()
	file := filepath.Join(t.TempDir(), "imported.cue")
	if err := os.WriteFile(file, text, 0o644); err != nil {
		t.Fatal(err)
	}
	p, err := schema.Load(file)
	if err != nil {
		t.Fatalf("what was written does not load: %v\n%s", err, text)
	}
	return p
}

// argsText is Args without the summary.
func argsText(args []string, o Options) ([]byte, error) {
	r, err := Args(args, o)
	if err != nil {
		return nil, err
	}
	return r.Text, nil
}

// fileText is Text without the summary.
func fileText(name string, data []byte, o Options) ([]byte, error) {
	r, err := Text(name, data, o)
	if err != nil {
		return nil, err
	}
	return r.Text, nil
}
