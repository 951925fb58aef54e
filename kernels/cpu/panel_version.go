package cpu

import "vapp.dev/kernels"

// PanelVersion changes when PackRows or PackScales store a format in another way: files
// of weights that were packed before are stale then. A test holds the packed bytes, and
// says when to raise a number.
func PanelVersion(f kernels.Format) int {
	switch f {
	case kernels.Q8_0:
		return 3
	case kernels.Q4_0, kernels.Q5_0, kernels.Q5_1, kernels.Q5_K, kernels.Q6_K:
		return 2
	default:
		return 1
	}
}
