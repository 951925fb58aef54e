//go:build cgo && linux && amd64

package engine_test

import (
	"slices"
	"testing"

	"vapp.dev/kernels/cpu/isatest"
)

// TestTilesAsked: the engines of these tests run on amx only after this binary has requested the tile
// registers from the system.
func TestTilesAsked(t *testing.T) {
	isatest.Asks(t, func() bool { return slices.Contains(variantsHere(t), "amx") })
}
