package schema

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

const governed = `import "vapp.dev/schema"

schema.#Profile & {
	name: "governed"
	model: source: "org/model"
	memory: utilization: 0.9
	serve: apiKeys: ["sk-hidden", {env: "KEY"}]
}
`

// write writes files below a new folder and returns the folder.
func write(t testing.TB, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range files {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// TestPolicyReach checks which policies apply: those from the profile's folder up to the
// module's root, and outside a module those of every folder above.
func TestPolicyReach(t *testing.T) {
	strict := "memory: utilization?: <=0.5\n"
	for name, c := range map[string]struct {
		files map[string]string
		bound bool
	}{
		"own folder":   {map[string]string{"a/b/policy.cue": strict}, true},
		"above":        {map[string]string{"policy.cue": strict}, true},
		"module root":  {map[string]string{"a/cue.mod/module.cue": bareModule, "a/policy.cue": strict}, true},
		"above module": {map[string]string{"a/cue.mod/module.cue": bareModule, "policy.cue": strict}, false},
		"beside":       {map[string]string{"a/c/policy.cue": strict}, false},
		"below":        {map[string]string{"a/b/c/policy.cue": strict}, false},
		"other name":   {map[string]string{"a/b/policies.cue": strict}, false},
		"a folder":     {map[string]string{"a/policy.cue/x.cue": strict}, true},
	} {
		t.Run(name, func(t *testing.T) {
			c.files["a/b/p.cue"] = governed
			file := filepath.Join(write(t, c.files), "a/b/p.cue")
			_, err := Load(file)
			if (err != nil) != c.bound {
				t.Errorf("%v, want it bound: %v", err, c.bound)
			}
			if e := (*Error)(nil); err != nil && !errors.As(err, &e) {
				t.Errorf("%T is no *Error", err)
			}
		})
	}
}

// TestPolicyLink checks that a policy may be a symbolic link, and that a broken link is an
// error.
func TestPolicyLink(t *testing.T) {
	dir := write(t, map[string]string{"p.cue": governed, "shared/strict.cue": "memory: utilization?: <=0.5\n"})
	for to, want := range map[string]Kind{"shared/strict.cue": Policy, "nowhere.cue": Unreadable} {
		if err := os.Symlink(to, filepath.Join(dir, PolicyFile)); err != nil {
			t.Skip("not run: no symlinks here:", err)
		}
		_, err := Load(filepath.Join(dir, "p.cue"))
		if err == nil || err.(*Error).Kind() != want {
			t.Errorf("%s: %v, want %s", to, err, want)
		}
		if err := os.Remove(filepath.Join(dir, PolicyFile)); err != nil {
			t.Fatal(err)
		}
	}
}

// TestPoliciesAreFollowed checks the files that a reload must watch.
func TestPoliciesAreFollowed(t *testing.T) {
	dir := write(t, map[string]string{
		"cue.mod/module.cue": bareModule, "a/policy.cue": "memory: utilization?: <=0.95\n", "a/b/p.cue": governed,
	})
	p, err := Load(filepath.Join(dir, "a/b/p.cue"))
	if err != nil {
		t.Fatal(err)
	}
	want := []string{filepath.Join(dir, "a/b/policy.cue"), filepath.Join(dir, "a/policy.cue"), filepath.Join(dir, "policy.cue")}
	if got := p.Policies(); !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}

// TestLoadPolicy checks policies without a profile, and that a policy is not loaded as one.
func TestLoadPolicy(t *testing.T) {
	dir := write(t, map[string]string{"policy.cue": "memory: utilization?: <=0.95\n", "bad/policy.cue": "memory: util?: 1\n", "p.cue": governed})
	if err := LoadPolicy(filepath.Join(dir, "policy.cue")); err != nil {
		t.Error(err)
	}
	if err := LoadPolicy(filepath.Join(dir, "bad/policy.cue")); err == nil || err.(*Error).Kind() != Unknown {
		t.Errorf("%v, want an unknown field", err)
	}
	if err := LoadPolicy(filepath.Join(dir, "none/policy.cue")); err == nil || err.(*Error).Kind() != Unreadable {
		t.Errorf("%v, want it unreadable", err)
	}
	if _, err := Load(filepath.Join(dir, "policy.cue")); err == nil || !strings.Contains(err.Error(), "a policy, not a profile") {
		t.Errorf("%v", err)
	}
	if p, err := Load(dir); err != nil || p.Name != "governed" {
		t.Errorf("a folder of one profile and its policy: %v", err)
	}
}

// TestBelow checks which files are profiles.
func TestBelow(t *testing.T) {
	dir := write(t, map[string]string{
		"cue.mod/module.cue": bareModule, "policy.cue": "", "p.cue": governed, "deep/er/q.cue": governed,
		"limits.cue": "package limits\n\n#Top: 0.92\n_x: 1\n", "broken.cue": "{{{", "empty.cue": "", ".git/x.cue": governed, ".x.cue": governed,
		"README.md": "x",
	})
	got, err := Below(dir)
	for i, f := range got {
		got[i], _ = filepath.Rel(dir, f)
	}
	if want := []string{"broken.cue", "deep/er/q.cue", "empty.cue", "p.cue"}; err != nil || !slices.Equal(got, want) {
		t.Errorf("%q, %v; want %q", got, err, want)
	}
	if _, err := Below(filepath.Join(dir, "nowhere")); err == nil {
		t.Error("a folder that is not there")
	}
}

// TestPolicyKeepsSecrets checks that no error contains a key.
func TestPolicyKeepsSecrets(t *testing.T) {
	dir := write(t, map[string]string{"p.cue": governed, "policy.cue": `serve: apiKeys: [...=~"^x"]` + "\n"})
	_, err := Load(filepath.Join(dir, "p.cue"))
	if err == nil || strings.Contains(err.Error(), "sk-hidden") || strings.Count(err.Error(), "serve.apiKeys[") != 2 {
		t.Errorf("%v", err)
	}
}

// FuzzPolicy checks that any policy either accepts the profile or gives an *Error that names
// the policy and no key, without a panic.
func FuzzPolicy(f *testing.F) {
	for _, s := range []string{
		"memory: utilization?: <=0.92 @message(\"x\")", "name: =~\"^a\"", "if name == \"a\" {backend: \"ref\"}\nname: _",
		"serve: apiKeys: [...{file!: string} | {env!: string}]", "require!: concurrency!: _", "import \"vapp.dev/schema\"\nschema.#Profile",
		"memory: memory", "{...}", "[string]: _", "@message(x)", "serve: apiKeys: [_, _, _]", "_|_", "3",
	} {
		f.Add([]byte(s))
	}
	dir := write(f, map[string]string{"cue.mod/module.cue": bareModule})
	f.Fuzz(func(t *testing.T, text []byte) {
		if err := os.WriteFile(filepath.Join(dir, PolicyFile), text, 0o644); err != nil {
			t.Fatal(err)
		}
		_, err := Parse(filepath.Join(dir, "p.cue"), []byte(governed))
		if err == nil {
			return
		}
		e, ok := err.(*Error)
		if !ok || len(e.List) == 0 {
			t.Fatalf("%T: %v", err, err)
		}
		for _, p := range e.List {
			if p.Kind == Policy && !strings.Contains(p.Message, "policy ") || strings.Contains(p.String(), "sk-hidden") {
				t.Errorf("%v", p)
			}
		}
	})
}
