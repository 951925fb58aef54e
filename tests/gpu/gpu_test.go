package main

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"vapp.dev/tests/gpu/agenda"
)

// TestAgenda checks that names are unique, that a part without graphs comes after its part with
// graphs, that profiles exist, and that the first parts, which matter most, fit the time.
func TestAgenda(t *testing.T) {
	for _, small := range []bool{false, true} {
		for _, r := range runs(small) {
			seen := map[string]bool{}
			for _, p := range r.parts {
				if seen[p.Name] || p.Title == "" || p.Budget < 10*time.Second {
					t.Errorf("%s: %+v", r.name, p)
				}
				seen[p.Name] = true
				if p.GraphsPart != "" && !seen[p.GraphsPart] {
					t.Errorf("%s compares with %s, which has not run", p.Name, p.GraphsPart)
				}
				if p.DependentPart != "" && (!seen[p.DependentPart] || !slices.Contains(p.Env, "VAPP_PLAIN_LAUNCHES=1")) {
					t.Errorf("%s compares with %s in %v", p.Name, p.DependentPart, p.Env)
				}
				for _, a := range p.Args {
					if strings.HasSuffix(a, ".cue") || strings.HasSuffix(a, ".py") {
						if _, err := os.Stat(a); err != nil {
							t.Errorf("%s: %v", p.Name, err)
						}
					}
				}
			}
			most := map[string]time.Duration{"A": 8 * time.Minute, "B": 9 * time.Minute, "C": 9 * time.Minute}[r.name]
			var first time.Duration
			for _, p := range r.parts[:min(4, len(r.parts))] {
				first += p.Budget
			}
			if r.most >= most || !small && first > most/2 {
				t.Errorf("%s may take %v, its first parts %v; at most %v and the half of that are wanted", r.name, r.most, first, most)
			}
		}
	}
}

// TestCommand checks what is run for a command line, and where its reports lie.
func TestCommand(t *testing.T) {
	for _, c := range []struct{ args, want string }{
		{"--out x", "A in A, B in B, C in C"},
		{"--out x B", "B in "},
		{"B --out x", "B in "},
		{"--out x C --small A", "A in A, C in C"},
		{"--out x --part suite,llama-3.1-8b", "A in A, B in B"},
		{"--list C", "C in "},
		{"A", "give --out DIR"},
		{"--out x D", `there is no run "D"`},
		{"--out x A --part suite,no-such", `no part is called "no-such"`},
		{"--out x A --part gpt-oss-20b", `no part is called "gpt-oss-20b"`},
		{"--no-such", "not defined"},
	} {
		parsed, err := parse(strings.Fields(c.args))
		var all []string
		for _, r := range parsed.runs {
			all = append(all, r.name+" in "+r.dir)
		}
		if got := strings.Join(all, ", "); err == nil && got != c.want || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %s, %v, want %s", c.args, got, err, c.want)
		}
	}
	two, err := choose(runs(false)[:1], "goldens,suite")
	if err != nil || len(two) != 1 || len(two[0].parts) != 2 || two[0].parts[0].Name != "goldens" {
		t.Error(two, err)
	}
}

// TestCheck checks that a report is written after every part, whatever the bundle lacks.
func TestCheck(t *testing.T) {
	out := filepath.Join(t.TempDir(), "out")
	c := command{bundle: t.TempDir()}
	all, err := c.check(context.Background(), out, agendaRun{most: time.Minute, parts: []agenda.Part{
		{Name: "gone", Title: "Gone", Kind: agenda.Text, Budget: time.Minute, Args: []string{"no-such-program-at-all"}},
	}})
	if err != nil || len(all) != 1 || all[0].Status != agenda.Absent {
		t.Fatal(all, err)
	}
	page, err := os.ReadFile(filepath.Join(out, "report.md"))
	if err != nil || !strings.Contains(string(page), "| gone | absent |") {
		t.Errorf("%s %v", page, err)
	}
	if _, err := os.Stat(filepath.Join(out, "results.json")); err != nil {
		t.Error(err)
	}
}

// TestFailingKernels checks that B is not run where a test of A fails, except with --keep-going, and that each run says in a line how it ended.
func TestFailingKernels(t *testing.T) {
	bundle := t.TempDir()
	if err := os.WriteFile(filepath.Join(bundle, "broken"), []byte("#!/bin/sh\necho '--- FAIL: TestA'\nexit 1\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	part := agenda.Part{Name: "kernels", Title: "Kernels", Kind: agenda.Tests, Budget: time.Minute, Args: []string{"broken"}}
	other := agenda.Part{Name: "other", Title: "Other", Kind: agenda.Text, Budget: time.Minute, Args: []string{"no-such-program-at-all"}}
	for keep, want := range map[bool]bool{false: false, true: true} {
		c := command{bundle: bundle, out: t.TempDir(), keepGoing: keep, runs: []agendaRun{
			{name: "A", dir: "A", most: time.Minute, parts: []agenda.Part{part}}, {name: "B", dir: "B", most: time.Minute, parts: []agenda.Part{other}},
		}}
		if code := c.run(); code != 1 {
			t.Errorf("exit code %d", code)
		}
		if _, err := os.Stat(filepath.Join(c.out, "B", "report.md")); (err == nil) != want {
			t.Errorf("keep going %v: the report of B: %v", keep, err)
		}
	}
}
