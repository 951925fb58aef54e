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

// TestSuiteFP8Cut runs all cases of TestPartsFP8Cut, and mixtures.
func TestSuiteFP8Cut(t *testing.T) {
	cutParts(t, map[string]int{"linear of scaled weights": 1, "linear of long rows": 1, "experts": 1})
}
