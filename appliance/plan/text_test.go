package plan

import (
	"slices"
	"testing"
)

// TestWrap: lines end at spaces and are within the width; a word that is wider has its own line.
func TestWrap(t *testing.T) {
	for text, want := range map[string][]string{
		"one two three":                   {"one two", "three"},
		"a/long/path/to/a/file, and more": {"a/long/path/to/a/file,", "and more"},
		"see a/long/path/to/a/file there": {"see", "a/long/path/to/a/file", "there"},
		"a/long/path/to/a/file":           {"a/long/path/to/a/file"},
		"":                                {""},
	} {
		if got := wrap(text, 8); !slices.Equal(got, want) {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
}
