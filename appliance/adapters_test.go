package appliance

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"vapp.dev/appliance/hub"
	"vapp.dev/engine"
	"vapp.dev/schema"
)

// slotEngine has slots for adapters and records what happens to them. A folder whose name begins
// with bad has no adapter that can be served.
type slotEngine struct {
	slots int
	list  []engine.AdapterInfo
	calls []string
}

func (e *slotEngine) at(name string) int {
	return slices.IndexFunc(e.list, func(a engine.AdapterInfo) bool { return a.Name == name })
}

func (e *slotEngine) LoadAdapter(_ context.Context, name, dir string, inPlace bool) error {
	e.calls = append(e.calls, "load "+name+" "+filepath.Base(dir))
	i := e.at(name)
	switch {
	case strings.HasPrefix(filepath.Base(dir), "bad"):
		return &engine.AdapterError{Name: name, Kind: engine.AdapterInvalid, Reason: "rank 64 is above 16"}
	case i >= 0 && inPlace:
		e.list[i].Path = dir
		return nil
	case i >= 0:
		return &engine.AdapterError{Name: name, Kind: engine.AdapterExists, Reason: "it is loaded"}
	case len(e.list) == e.slots:
		return &engine.AdapterError{Name: name, Kind: engine.AdapterFull, Reason: "no slot is free"}
	}
	e.list = append(e.list, engine.AdapterInfo{Name: name, Path: dir})
	return nil
}

func (e *slotEngine) UnloadAdapter(_ context.Context, name string) error {
	e.calls = append(e.calls, "unload "+name)
	if e.at(name) < 0 {
		return &engine.AdapterError{Name: name, Kind: engine.AdapterUnknown, Reason: "it is not loaded"}
	}
	e.list = slices.DeleteFunc(e.list, func(a engine.AdapterInfo) bool { return a.Name == name })
	return nil
}

func (e *slotEngine) Adapters() []engine.AdapterInfo { return e.list }

// folders makes folders of adapters below dir.
func folders(t *testing.T, dir string, names ...string) {
	t.Helper()
	for _, n := range names {
		if err := os.MkdirAll(filepath.Join(dir, n), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, n, adapterConfig), []byte("{}"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// loraProfile returns a profile in dir with that lora field; "": none.
func loraProfile(t *testing.T, dir, lora string) *schema.Profile {
	t.Helper()
	path := filepath.Join(dir, "p.cue")
	text := "import \"vapp.dev/schema\"\n\nschema.#Profile & {\n\tname: \"p\"\n\tmodel: source: \"org/model\"\n\t" + lora + "\n}\n"
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	p, err := schema.Load(path)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// TestAdapterChanges checks which adapters a change of the profile loads and unloads, and that a
// failure restores those before.
func TestAdapterChanges(t *testing.T) {
	const two = `lora: {maxLoras: 2, adapters: {a: "./one", "b/c": "./two"}}`
	for name, c := range map[string]struct {
		old, next string // lora; old "": at start
		calls     string
		loaded    string
		err       string
	}{
		"start":      {"", two, "load a one, load b/c two", "a=one b/c=two", ""},
		"start none": {"", "lora: {}", "", "", ""},
		"start bad": {"", `lora: {maxLoras: 2, adapters: {a: "./one", "b/c": "./bad"}}`, "load a one, load b/c bad, unload a", "",
			`p.cue:6:45: lora.adapters."b/c": adapter`},
		"start nothing there": {"", `lora: {adapters: {a: "./nowhere"}}`, "", "", `p.cue:6:20: lora.adapters.a: Loading lora a failed: No adapter found for ./nowhere`},
		"added":               {`lora: {maxLoras: 2, adapters: {a: "./one"}}`, two, "load b/c two", "a=one b/c=two", ""},
		"removed":             {two, `lora: {maxLoras: 2, adapters: {a: "./one"}}`, "unload b/c", "a=one", ""},
		"all removed":         {two, `lora: {maxLoras: 2}`, "unload a, unload b/c", "", ""},
		"another folder":      {two, `lora: {maxLoras: 2, adapters: {a: "./two", "b/c": "./two"}}`, "load a two", "a=two b/c=two", ""},
		"same":                {two, two, "", "a=one b/c=two", ""},
		"replaced in a full set": {two, `lora: {maxLoras: 2, adapters: {a: "./one", d: "./two"}}`,
			"unload b/c, load d two", "a=one d=two", ""},
		"restored": {two, `lora: {maxLoras: 2, adapters: {a: "./two", d: "./bad2"}}`,
			"unload b/c, load a two, load d bad2, load a one, load b/c two", "a=one b/c=two", `p.cue:6:45: lora.adapters.d: adapter`},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			folders(t, dir, "one", "two", "bad", "bad2")
			e := &slotEngine{slots: 2}
			var old *schema.Profile
			if c.old != "" {
				old = loraProfile(t, dir, c.old)
				if err := (&adapters{engine: e, profile: old}).change(t.Context(), nil, old); err != nil {
					t.Fatal(err)
				}
				e.calls = nil
			}
			next := loraProfile(t, dir, c.next)
			err := (&adapters{engine: e, profile: next}).change(t.Context(), old, next)
			if got := fmt.Sprint(err); c.err == "" && err != nil || c.err != "" && !strings.Contains(got, c.err) {
				t.Errorf("error %v, want %q", err, c.err)
			}
			if got := strings.Join(e.calls, ", "); got != c.calls {
				t.Errorf("calls %q, want %q", got, c.calls)
			}
			var loaded []string
			for _, a := range (&adapters{engine: e}).Adapters() {
				loaded = append(loaded, a.Name+"="+filepath.Base(a.Path))
			}
			if got := strings.Join(loaded, " "); got != c.loaded {
				t.Errorf("loaded %q, want %q", got, c.loaded)
			}
		})
	}
}

// TestAdapterUnloadedByClient checks that a profile may drop an adapter that a client has unloaded.
func TestAdapterUnloadedByClient(t *testing.T) {
	dir := t.TempDir()
	folders(t, dir, "one")
	e := &slotEngine{slots: 1}
	old, next := loraProfile(t, dir, `lora: adapters: {a: "./one"}`), loraProfile(t, dir, "lora: {}")
	if err := (&adapters{engine: e, profile: next}).change(t.Context(), old, next); err != nil {
		t.Fatal(err)
	}
}

// TestAdapterFolder checks where the folder of an adapter is looked for.
func TestAdapterFolder(t *testing.T) {
	dir, cache := t.TempDir(), t.TempDir()
	commit := strings.Repeat("a", 40)
	repo := filepath.Join(cache, "models--org--sql")
	snapshot := filepath.Join(repo, "snapshots", commit)
	folders(t, dir, "here", "org/both")
	folders(t, filepath.Dir(snapshot), commit)
	if err := os.MkdirAll(filepath.Join(repo, "refs"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(repo, "refs", "main"), []byte(commit), 0o644); err != nil {
		t.Fatal(err)
	}
	a := &adapters{profile: loraProfile(t, dir, "lora: {}"), hub: hub.Settings{Cache: cache}}
	for path, want := range map[string]string{
		"./here": filepath.Join(dir, "here"), filepath.Join(dir, "here"): filepath.Join(dir, "here"),
		"org/sql": snapshot, "org/both": filepath.Join(dir, "org/both"), "org/none": "", "./none": "", "/none": "",
	} {
		got, err := a.folder("x", path)
		if got != want || (err == nil) != (want != "") {
			t.Errorf("%s: %q, %v, want %q", path, got, err, want)
		}
	}
}

// TestCheckAdapters checks the errors of a profile's adapters that need no engine.
func TestCheckAdapters(t *testing.T) {
	for lora, want := range map[string]string{
		`lora: {adapters: {a: "./a"}}`: "",
		"":                             "",
		`lora: {maxLoras: 2, adapters: {a: "./a", b: "./b", c: "./c"}}`:   "p.cue:6:22: lora.adapters: 3 adapters are more than lora.maxLoras, 2; set lora.maxLoras to 3",
		`lora: adapters: {"org/model": "./a"}`:                            `p.cue:6:19: lora.adapters."org/model": requests for org/model are for the model itself; give the adapter another name`,
		`lora: adapters: {"a": "./a"}, serve: servedModelName: ["m","a"]`: `p.cue:6:19: lora.adapters.a: requests for a are for the model itself; give the adapter another name`,
	} {
		err := CheckAdapters(loraProfile(t, t.TempDir(), lora))
		if (err == nil) != (want == "") || err != nil && !strings.HasSuffix(err.Error(), want) {
			t.Errorf("%s: %v, want %q", lora, err, want)
		}
	}
}
