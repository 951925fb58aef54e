package gittree

import (
	"errors"
	"strings"
	"testing"
)

// TestParseRange checks accepted and refused ranges.
func TestParseRange(t *testing.T) {
	for text, want := range map[string]Range{
		"a..b":                     {Old: "a", New: "b"},
		"a...b":                    {Old: "a", New: "b", SinceFork: true},
		"a":                        {Old: "a", WorkingTree: true},
		"..b":                      {Old: "HEAD", New: "b"},
		"a..":                      {Old: "a", New: "HEAD"},
		"...":                      {Old: "HEAD", New: "HEAD", SinceFork: true},
		"origin/main..v1.2~3":      {Old: "origin/main", New: "v1.2~3"},
		"HEAD@{1}..:/fix":          {Old: "HEAD@{1}", New: ":/fix"},
		"refs/tags/a-b...feature-": {Old: "refs/tags/a-b", New: "feature-", SinceFork: true},
	} {
		got, err := ParseRange(text)
		if err != nil || got != want {
			t.Errorf("%q: %+v, %v; want %+v", text, got, err, want)
		}
	}
	for _, text := range []string{"", "-a", "-a..b", "a..-b", "a...--output=x", "a..b..c", "a....b", "a b", "a..b\n", "a\x00b", "--git-dir=/x"} {
		var wrong *RangeError
		if got, err := ParseRange(text); !errors.As(err, &wrong) {
			t.Errorf("%q: %+v, %v; want a *RangeError", text, got, err)
		}
	}
}

// FuzzParseRange checks that no accepted name can be read as an option by git.
func FuzzParseRange(f *testing.F) {
	f.Add("a..b")
	f.Add("...-x")
	f.Fuzz(func(t *testing.T, text string) {
		r, err := ParseRange(text)
		if err != nil {
			return
		}
		for _, name := range []string{r.Old, r.New} {
			if strings.HasPrefix(name, "-") || strings.ContainsAny(name, "\x00\n ") {
				t.Errorf("%q: %+v", text, r)
			}
		}
		if r.Old == "" || r.New == "" && !r.WorkingTree {
			t.Errorf("%q: %+v", text, r)
		}
	})
}

func TestProfilePath(t *testing.T) {
	for path, want := range map[string]bool{
		"a.cue": true, "x/y/a.cue": true, "cue.mod/module.cue": false, "x/cue.mod/pkg/a.cue": false, ".x/a.cue": false, "x/.y/a.cue": false, "a.json": false,
	} {
		if profilePath(path) != want {
			t.Errorf("%s: want %v", path, want)
		}
	}
}
