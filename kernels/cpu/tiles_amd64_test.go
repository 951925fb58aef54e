//go:build cgo && linux

package cpu

import (
	"testing"

	"vapp.dev/kernels"
	"vapp.dev/kernels/cpu/isatest"
)

// TestTilesAsked checks that this binary runs kernels of AMX only after it has asked the system
// for the tile registers, on every path to a kernel.
func TestTilesAsked(t *testing.T) {
	linear := func(variant string, f kernels.Format) func() bool {
		return func() bool { _, ok := LinearFor(variant, f); return ok }
	}
	for name, found := range map[string]func() bool{
		"present":    func() bool { return present(AMX) },
		"Linear":     linear(AMX, kernels.BF16),
		"+w8a8":      linear(W8A8(AMX), kernels.I8),
		"Matrix":     func() bool { _, ok := Matrix{Variant: AMX, Format: kernels.Q4_K}.Kernel(); return ok },
		"attention":  func() bool { _, ok := Kernel(OpAttention, AMX); return ok },
		"tile rate":  func() bool { _, ok := Kernel(OpTilesBF16, AMX); return ok },
		"int8 rate":  func() bool { _, ok := Kernel(OpDotInt8, AMX); return ok },
		"small ones": func() bool { _, ok := Kernel(OpNorm, AMX); return ok },
	} {
		t.Run(name, func(t *testing.T) { isatest.Asks(t, found) })
	}
}
