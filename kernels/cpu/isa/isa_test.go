package isa

import (
	"errors"
	"slices"
	"strings"
	"testing"
)

// TestRequestTiles asks the system of this machine: it does not grant tile registers to a
// processor without them, and it grants them again after it has granted them once.
func TestRequestTiles(t *testing.T) {
	first, again := requestTiles(), requestTiles()
	if (first == nil) != (again == nil) {
		t.Errorf("asked twice: %v, then %v", first, again)
	}
	if !slices.Contains(detect(), AMX) && first == nil {
		t.Error("tile registers were granted on a processor without AMX")
	}
}

// TestRefused checks that the error gives the system's error and what helps.
func TestRefused(t *testing.T) {
	why := errors.New("operation not supported")
	p := &Processor{Variants: []string{AMX, Generic}, Ask: func() error { return why }}
	defer Replace(p)()
	err := Tiles()
	var refused *RefusedError
	if !errors.As(err, &refused) || !errors.Is(err, why) || !strings.Contains(err.Error(), "Linux 5.16") || strings.Contains(err.Error(), "\n") {
		t.Errorf("%v", err)
	}
	if got := Variants(); !slices.Equal(got, []string{Generic}) {
		t.Errorf("refused, it has %v", got)
	}
}
