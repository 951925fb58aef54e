//go:build cgo && linux

package engine_test

import (
	"fmt"
	"testing"

	"vapp.dev/engine"
	"vapp.dev/engine/backend"
	"vapp.dev/engine/backend/cpu"
	"vapp.dev/engine/enginetest"
	"vapp.dev/engine/ranks"
)

// TestImagesRanksCPU is TestImagesRanks on this machine's best kernel variant.
func TestImagesRanksCPU(t *testing.T) {
	if testing.Short() {
		t.Skip("not run: -short leaves it out, make test runs it")
	}
	imagesOnRanks(t, toy{on: cpu.Opener{}, opts: engine.Options{Backend: backend.Settings{Variant: variantsHere(t)[0], Threads: 1}}}, seeingFamilies, rankGrids)
}

// TestImagesRecordedRanksCPU is TestImagesRecorded on two tensor parallel ranks and in two stages.
func TestImagesRecordedRanksCPU(t *testing.T) {
	if testing.Short() {
		t.Skip("not run: -short leaves it out, make test runs it")
	}
	v, limit := variantsHere(t)[0], enginetest.BoundFloat
	if roundsToBF16(v) {
		limit = enginetest.BoundBF16
	}
	for _, p := range []ranks.Places{{Tensor: 2, Pipeline: 1}, {Tensor: 1, Pipeline: 2}} {
		t.Run(fmt.Sprintf("%d×%d", p.Tensor, p.Pipeline), func(t *testing.T) {
			imagesRecorded(t, cpu.Opener{}, backend.Settings{Variant: v, Threads: 1}, limit, p)
		})
	}
}
