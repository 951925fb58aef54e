package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"vapp.dev/tests/gpu/agenda"
)

// TestAgenda checks that names are unique, that a part without graphs comes after its part with
// graphs, that profiles exist, and that the first parts, which matter most, fit the time.
func TestAgenda(t *testing.T) {
	for _, parts := range [][]agenda.Part{full(), tiny()} {
		seen := map[string]bool{}
		for _, p := range parts {
			if seen[p.Name] || p.Title == "" || p.Budget < 10*time.Second {
				t.Errorf("%+v", p)
			}
			seen[p.Name] = true
			if p.GraphsPart != "" && !seen[p.GraphsPart] {
				t.Errorf("%s compares with %s, which has not run", p.Name, p.GraphsPart)
			}
			for _, a := range p.Args {
				if strings.HasSuffix(a, ".cue") || strings.HasSuffix(a, ".py") {
					if _, err := os.Stat(a); err != nil {
						t.Errorf("%s: %v", p.Name, err)
					}
				}
			}
		}
	}
	var first time.Duration
	for _, p := range full()[:7] {
		first += p.Budget
	}
	if first > 5*time.Minute {
		t.Errorf("device, plan, the tests and the first model may take %v of nine minutes", first)
	}
	if _, err := choose(full(), "suite,no-such"); err == nil || !strings.Contains(err.Error(), "no-such") {
		t.Error(err)
	}
	if two, err := choose(full(), "torch,device"); err != nil || len(two) != 2 || two[0].Name != "torch" {
		t.Error(two, err)
	}
}

// TestCheck checks that a report is written after every part, whatever the bundle lacks.
func TestCheck(t *testing.T) {
	out := filepath.Join(t.TempDir(), "out")
	all, err := check(t.TempDir(), out, time.Minute, []agenda.Part{
		{Name: "gone", Title: "Gone", Kind: agenda.Text, Budget: time.Minute, Args: []string{"no-such-program-at-all"}},
	})
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
