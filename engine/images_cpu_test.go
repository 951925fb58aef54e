//go:build cgo && linux

package engine_test

import (
	"testing"

	"vapp.dev/engine/backend"
	"vapp.dev/engine/backend/cpu"
)

// TestImagesCPU is TestImages on this machine's best kernel variant.
func TestImagesCPU(t *testing.T) {
	if testing.Short() {
		t.Skip("not run: -short leaves it out, make test runs it")
	}
	images(t, cpu.Opener{}, backend.Settings{Variant: variantsHere(t)[0]}, seeingFamilies)
}
