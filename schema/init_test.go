package schema

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"cuelang.org/go/cue"
	"cuelang.org/go/cue/cuecontext"
	"cuelang.org/go/cue/load"
)

// plainVet does what `cue vet -c` does, without overlay, registry or this package's checks.
func plainVet(t *testing.T, dir string) error {
	t.Helper()
	list := load.Instances([]string{"."}, &load.Config{Dir: dir, Registry: noRegistry{}})
	if list[0].Err != nil {
		return list[0].Err
	}
	return cuecontext.New().BuildInstance(list[0]).Validate(cue.Concrete(true), cue.Final())
}

func TestInit(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "new")
	wrote, err := Init(dir)
	if err != nil || len(wrote) < 4 {
		t.Fatalf("wrote %v: %v", wrote, err)
	}
	profile := filepath.Join(dir, "first.cue")
	if _, err := Load(profile); err != nil {
		t.Errorf("vapp: %v", err)
	}
	if err := plainVet(t, dir); err != nil {
		t.Errorf("plain cue: %v", err)
	}
	if wrote, err := Init(dir); err != nil || len(wrote) > 0 {
		t.Errorf("a second Init wrote %v: %v", wrote, err)
	}
	b, err := os.ReadFile(profile)
	if err != nil {
		t.Fatal(err)
	}
	bad := strings.Replace(string(b), `"first"`, `"first", serve: port: 70000`, 1)
	if err := os.WriteFile(profile, []byte(bad), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := plainVet(t, dir); err == nil {
		t.Error("plain cue takes port 70000")
	}
	vendored := filepath.Join(dir, "cue.mod", "pkg", "vapp.dev", "schema", "serve.cue")
	if err := os.WriteFile(vendored, []byte("package schema\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	if wrote, err := Init(dir); err != nil || len(wrote) != 1 {
		t.Errorf("Init over an old schema wrote %v: %v", wrote, err)
	}
}
