package isa

import (
	"os"
	"slices"
	"strings"
	"testing"
)

// TestDetect compares the variants of this processor with those that VAPP_WANT_VARIANTS names:
// scripts/arm64.sh emulates processors whose instructions are known.
func TestDetect(t *testing.T) {
	want := os.Getenv("VAPP_WANT_VARIANTS")
	if want == "" {
		t.Skip("not run: VAPP_WANT_VARIANTS does not say what this processor has; scripts/arm64.sh test does")
	}
	if got := detect(); !slices.Equal(got, strings.Split(want, ",")) {
		t.Errorf("detect finds %v, want %s", got, want)
	}
}

// TestArchitecture checks that every variant but portable C belongs to one architecture, and that
// detect finds none of another.
func TestArchitecture(t *testing.T) {
	found := map[string]int{}
	for _, v := range All {
		found[Architecture(v)]++
	}
	if found["amd64"] != 4 || found["arm64"] != 3 || found[""] != 1 || Architecture(Generic) != "" || Architecture("sse") != "" {
		t.Errorf("variants by architecture: %v", found)
	}
	for _, v := range detect() {
		for _, w := range detect() {
			if a, b := Architecture(v), Architecture(w); a != "" && b != "" && a != b {
				t.Errorf("%s and %s are of one processor", v, w)
			}
		}
	}
}
