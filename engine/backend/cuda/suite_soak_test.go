//go:build linux && cgo && cuda && soak

package cuda

import "testing"

// TestSuite runs the whole of the backends' suite.
func TestSuite(t *testing.T) {
	emulated(t)
	suite.Run(t)
}
