//go:build linux && cgo && cuda && soak

package engine_test

import (
	"testing"

	"vapp.dev/engine/backend"
	"vapp.dev/engine/backend/cuda"
	"vapp.dev/engine/enginetest"
	"vapp.dev/engine/models"
	"vapp.dev/engine/ranks"
	"vapp.dev/kernels"
)

// seeingCUDA are smaller than seeingFamilies, which take hours on the emulated driver.
var seeingCUDA = []seeing{towerSeeing, headSeeing}

// TestImagesSoakCUDA is TestImages in float32, with smaller checkpoints.
func TestImagesSoakCUDA(t *testing.T) {
	emulate(t)
	images(t, cuda.Opener{}, backend.Settings{}, seeingCUDA)
}

// TestImagesRanksSoakCUDA is TestImagesRanks in float32, with smaller checkpoints.
func TestImagesRanksSoakCUDA(t *testing.T) {
	like := toy{on: cuda.Opener{}, groups: overNCCL(t), build: models.Build{Dtype: kernels.F32}}
	imagesOnRanks(t, like, seeingCUDA, rankGrids[:2])
}

// TestImagesRecordedCUDA is TestImagesRecorded, by graphs.
func TestImagesRecordedCUDA(t *testing.T) {
	emulate(t)
	imagesRecorded(t, cuda.Opener{}, backend.Settings{Graphs: graphs()[1]}, enginetest.BoundCUDA, ranks.Places{})
}
