//go:build cgo && linux

package engine_test

import (
	"testing"

	"vapp.dev/engine/backend"
	"vapp.dev/engine/backend/cpu"
	"vapp.dev/engine/enginetest"
	"vapp.dev/engine/ranks"
)

// TestImagesRecordedCPU is TestImagesRecorded on every kernel variant of this machine.
func TestImagesRecordedCPU(t *testing.T) {
	for _, v := range variantsHere(t) {
		limit := enginetest.BoundFloat
		if roundsToBF16(v) {
			limit = enginetest.BoundBF16
		}
		t.Run(v, func(t *testing.T) {
			imagesRecorded(t, cpu.Opener{}, backend.Settings{Variant: v}, limit, ranks.Places{})
		})
	}
}
