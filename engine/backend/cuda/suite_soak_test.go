//go:build linux && cgo && cuda && soak

package cuda

import (
	"testing"

	"vapp.dev/engine/backend/backendtest"
)

// allShapes is on: TestShapes multiplies the shapes of all models.
const allShapes = true

// TestSuite runs all cases of the backends' suite.
func TestSuite(t *testing.T) {
	eachOf(t, backendtest.Parts(), func(t *testing.T, part string) { suite.Part(t, part, 1) })
}
