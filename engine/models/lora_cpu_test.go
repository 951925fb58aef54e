//go:build cgo && linux

package models_test

import (
	"testing"

	"vapp.dev/engine/backend"
	"vapp.dev/engine/backend/cpu"
)

// TestLoRACPU is TestLoRARef on every variant.
func TestLoRACPU(t *testing.T) {
	variants(t, func(t *testing.T, s backend.Settings, limit bound, _ bool) { loraGolden(t, cpu.Opener{}, s, limit) })
}
