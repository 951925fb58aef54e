package cpu

import "vapp.dev/kernels"

// The constants of native/linear/stored.h; linear.go checks that they are equal.
const (
	storedWork = 393216 // bytes of unpacked panels, if that is more than one
	storedMost = 8      // panels that are unpacked at once
)

// storedFormats lists the formats whose blocks a panel keeps as a file has them; a product unpacks them to
// `expanded`.
var storedFormats = []kernels.Format{kernels.IQ3_XXS, kernels.IQ3_S, kernels.IQ2_XXS, kernels.IQ2_XS, kernels.IQ2_S,
	kernels.IQ1_S, kernels.IQ1_M, kernels.TQ1_0, kernels.TQ2_0}

// expanded is the layout of VAPP_EXPANDED.
var expanded = blocks{low: 4, subs: 2}

// expandedBytes returns the bytes of the panels that a thread unpacks at once.
func expandedBytes(in int) int64 {
	each := expanded.bytes(int64(in))
	n := min(storedWork/each, storedMost)
	if n < 2 {
		return each
	}
	return n &^ 1 * each
}

// packStored stores a row's blocks as a lane of a panel, each byte 32 from the next.
func packStored(panel []byte, src []byte) {
	for i, b := range src {
		panel[i*panelRows] = b
	}
}
