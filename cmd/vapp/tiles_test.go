//go:build cgo && linux && amd64

package main

import (
	"slices"
	"testing"

	"vapp.dev/kernels/cpu/isatest"
)

// TestTilesAsked checks that the command's backends report variant amx only after this process has
// asked the system for permission to use the tile registers.
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
