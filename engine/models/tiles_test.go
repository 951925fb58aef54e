//go:build cgo && linux && amd64

package models_test

import (
	"slices"
	"testing"

	"vapp.dev/engine/backend/cpu"
	"vapp.dev/kernels/cpu/isatest"
)

// TestTilesAsked checks that goldens run on amx only after this process has requested the tile
// registers.
func TestTilesAsked(t *testing.T) {
	isatest.Asks(t, func() bool {
		facts, err := cpu.Opener{}.Probe()
		must(t, err)
		return slices.Contains(facts.Variants, "amx")
	})
}
