package models_test

import (
	"testing"

	"vapp.dev/engine/backend"
	"vapp.dev/engine/backend/ref"
)

// TestGoldenRef holds ref to the bounds of float32 arithmetic.
func TestGoldenRef(t *testing.T) { RunGoldens(t, ref.Opener{}, backend.Settings{}, boundFloat, true) }
