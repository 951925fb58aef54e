//go:build cgo && linux && amd64

package main

import (
	"slices"
	"testing"

	"vapp.dev/kernels/cpu/isatest"
)

// TestTilesAsked: the command's backends, with which scripts and benchmarks run too, are of
// variant amx only after this binary has asked the system for the tile registers.
func TestTilesAsked(t *testing.T) {
	isatest.Asks(t, func() bool {
		for _, b := range localMachine().Backends {
			if b.Name() != "cpu" {
				continue
			}
			f, err := b.Probe()
			if err != nil {
				t.Fatal(err)
			}
			return slices.Contains(f.Variants, "amx")
		}
		t.Fatal("there is no backend cpu")
		return false
	})
}
