package cpu

import "vapp.dev/kernels"

// PanelVersion returns the version of the bytes that PackRows and PackScales store for a
// format. Cached files of packed weights are stale when it changes. TestPanelVersions checks
// the packed bytes and fails when a number must be raised.
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
