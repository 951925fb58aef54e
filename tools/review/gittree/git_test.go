package main

import (
	"errors"
	"strings"
	"testing"
)

func TestParseRange(t *testing.T) {
	for text, want := range map[string]revisionRange{
		"a..b":                     {old: "a", new: "b"},
		"a...b":                    {old: "a", new: "b", sinceFork: true},
		"a":                        {old: "a", workingTree: true},
		"..b":                      {old: "HEAD", new: "b"},
		"a..":                      {old: "a", new: "HEAD"},
		"...":                      {old: "HEAD", new: "HEAD", sinceFork: true},
		"origin/main..v1.2~3":      {old: "origin/main", new: "v1.2~3"},
		"HEAD@{1}..:/fix":          {old: "HEAD@{1}", new: ":/fix"},
		"refs/tags/a-b...feature-": {old: "refs/tags/a-b", new: "feature-", sinceFork: true},
	} {
		got, err := parseRange(text)
		if err != nil || got != want {
			t.Errorf("%q: %+v, %v; want %+v", text, got, err, want)
		}
	}
	for _, text := range []string{"", "-a", "-a..b", "a..-b", "a...--output=x", "a..b..c", "a....b", "a b", "a..b\n", "a\x00b", "--git-dir=/x"} {
		var usage *usageError
		if got, err := parseRange(text); !errors.As(err, &usage) {
			t.Errorf("%q: %+v, %v; want a usage error", text, got, err)
		}
	}
}

// FuzzParseRange: what reaches git is never an option.
func FuzzParseRange(f *testing.F) {
	f.Add("a..b")
	f.Add("...-x")
	f.Fuzz(func(t *testing.T, text string) {
		r, err := parseRange(text)
		if err != nil {
			return
		}
		for _, name := range []string{r.old, r.new} {
			if strings.HasPrefix(name, "-") || strings.ContainsAny(name, "\x00\n ") {
				t.Errorf("%q: %+v", text, r)
			}
		}
		if r.old == "" || r.new == "" && !r.workingTree {
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
