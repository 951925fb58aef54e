package isa

import (
	"slices"
	"testing"
)

// TestLacks checks that the variants that lack nothing are those that detect finds.
func TestLacks(t *testing.T) {
	var have []string
	for _, v := range All {
		if len(Lacks(v)) == 0 {
			have = append(have, v)
		}
	}
	if got := detect(); !slices.Equal(got, have) {
		t.Errorf("detect finds %v, and %v lack nothing", got, have)
	}
}
