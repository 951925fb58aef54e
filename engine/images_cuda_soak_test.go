//go:build linux && cgo && cuda && soak

package engine_test

import (
	"testing"

	"vapp.dev/engine/backend"
	"vapp.dev/engine/backend/cuda"
	"vapp.dev/engine/enginetest"
	"vapp.dev/engine/ranks"
)

// TestImagesSoakCUDA is TestImages in float32.
func TestImagesSoakCUDA(t *testing.T) {
	emulate(t)
	images(t, cuda.Opener{}, backend.Settings{})
}

// TestImagesRecordedCUDA is TestImagesRecorded, by graphs.
func TestImagesRecordedCUDA(t *testing.T) {
	emulate(t)
	imagesRecorded(t, cuda.Opener{}, backend.Settings{Graphs: graphs()[1]}, enginetest.BoundBF16, ranks.Places{})
}
