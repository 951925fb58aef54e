package schema

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
)

const readingHead = "package profiles\nimport \"vapp.dev/schema\"\n"

// TestReadingFiles checks that a Reading lists the profile's file, its policies, the imported
// packages and their module, also if the profile is refused.
func TestReadingFiles(t *testing.T) {
	root := t.TempDir()
	put := func(name, text string) {
		t.Helper()
		at := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(at), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(at, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	put("cue.mod/module.cue", "module: \"fleet.local\"\nlanguage: version: \"v0.16.0\"\n")
	put("common/a.cue", "package common\nlimits: maxQueue: 5\n")
	put("common/notes.txt", "x")
	profile := "package profiles\nimport (\n\"vapp.dev/schema\"\n\"fleet.local/common\"\n)\nschema.#Profile & {name: \"x\", model: source: \"./m\", serve: limits: common.limits, "
	for name, more := range map[string]string{"good": "}\n", "refused": "backned: 1}\n"} {
		put("team/p.cue", profile+more)
		r := Read(filepath.Join(root, "team/p.cue"))
		if (r.Err == nil) != (name == "good") {
			t.Errorf("%s: %v", name, r.Err)
		}
		for _, want := range []string{"team/p.cue", "team/policy.cue", "policy.cue", "common/a.cue", "cue.mod/module.cue"} {
			if !slices.Contains(r.Files, filepath.Join(root, want)) {
				t.Errorf("%s: no %s in %v", name, want, r.Files)
			}
		}
		if !slices.Equal(r.Folders, []string{filepath.Join(root, "common")}) {
			t.Errorf("%s: folders %v", name, r.Folders)
		}
	}
}

// TestReadingAccess checks that keys and certificate are read from profiles that are refused
// because of other fields, and that the valid elements of an invalid list are read.
func TestReadingAccess(t *testing.T) {
	for name, c := range map[string]struct {
		text   string
		keys   int
		listed bool
		whole  bool
		tls    bool
	}{
		"good":             {`serve: {apiKeys: ["a", {env: "B"}], tls: {certFile: "c", keyFile: "k"}}`, 2, true, true, true},
		"unknown field":    {`serve: {apiKeys: ["a"], tls: {certFile: "c", keyFile: "k"}}, backned: 1`, 1, true, true, true},
		"unknown beside":   {`serve: {apiKeys: ["a"], hots: "x", tls: {certFile: "c"}}`, 1, true, true, false},
		"wrong element":    {`serve: apiKeys: ["a", 5, {fiel: "x"}, {file: "f"}]`, 2, true, false, false},
		"nothing":          {`backned: 1`, 0, false, true, false},
		"two lists differ": {`serve: {apiKeys: ["a"]}, serve: {apiKeys: ["b"]}`, 2, true, false, false},
	} {
		path := filepath.Join(t.TempDir(), "p.cue")
		if err := os.WriteFile(path, []byte(readingHead+"schema.#Profile & {name: \"x\", model: source: \"./m\", "+c.text+"}\n"), 0o644); err != nil {
			t.Fatal(err)
		}
		a := Read(path).Access
		if a == nil || len(a.Keys) != c.keys || a.Listed != c.listed || a.Whole != c.whole || (a.TLS != nil) != c.tls {
			t.Errorf("%s: %+v", name, a)
		}
	}
	path := filepath.Join(t.TempDir(), "p.cue")
	if err := os.WriteFile(path, []byte("serve: {"), 0o644); err != nil {
		t.Fatal(err)
	}
	if r := Read(path); r.Access != nil || r.Err == nil {
		t.Errorf("no CUE: %+v, %v", r.Access, r.Err)
	}
}

// TestTake checks that only fields of the given classes come from the next profile, and that
// the presence of an optional struct has the class of the struct.
func TestTake(t *testing.T) {
	of := func(more string) *Profile {
		return parse(t, readingHead+"schema.#Profile & {name: \"x\", model: source: \"./m\", "+more+"}\n")
	}
	running := of(`scheduler: maxNumSeqs: 4, serve: responses: store: "r"`)
	newest := of(`scheduler: {maxNumSeqs: 8, policy: "priority"}, serve: {apiKeys: ["a"], port: 1, metricsCompat: true, responses: {store: "s", maxAge: "1h"}, tls: {certFile: "c", keyFile: "k"}}`)
	got := running.Take(newest, Live)
	if got.Scheduler.MaxNumSeqs != 4 || got.Scheduler.Policy != "fcfs" || len(got.Serve.APIKeys) != 1 || got.Serve.Port != 1 || got.Serve.MetricsCompat || got.Serve.TLS != nil {
		t.Errorf("%+v", got.Serve)
	}
	if r := got.Serve.Responses; r.Store != "r" || r.MaxAge == running.Serve.Responses.MaxAge || running.Serve.Responses.Store != "r" {
		t.Errorf("%+v", r)
	}
	for _, c := range Diff(got, newest) {
		if c.Class == Live {
			t.Errorf("left: %v", c)
		}
	}
	if all := running.Take(newest, Live, Drain, Structural, Restart); len(Diff(all, newest)) != 0 {
		t.Errorf("left of all: %v", Diff(all, newest))
	}
}
