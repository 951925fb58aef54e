//go:build cgo && linux

package engine_test

import (
	"testing"

	"vapp.dev/engine/backend/cpu"
)

// TestFamiliesCPU is TestFamilies on the best kernels that this machine has.
func TestFamiliesCPU(t *testing.T) { families(t, cpu.Opener{}) }
