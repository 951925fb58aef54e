//go:build cgo && linux && amd64

package engine_test

import (
	"slices"
	"testing"

	"vapp.dev/kernels/cpu/isatest"
)

// TestTilesAsked: engines of these tests run on amx only after this binary has asked the system
// for the tile registers.
func TestTilesAsked(t *testing.T) {
	isatest.Asks(t, func() bool { return slices.Contains(variantsHere(t), "amx") })
}
