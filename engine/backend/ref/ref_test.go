package ref_test

import (
	"testing"

	"vapp.dev/engine/backend"
	"vapp.dev/engine/backend/backendtest"
	"vapp.dev/engine/backend/ref"
)

// TestSuite is what every backend passes.
func TestSuite(t *testing.T) { backendtest.Run(t, ref.Opener{}) }

func BenchmarkOps(b *testing.B) { backendtest.Bench(b, ref.Opener{}, backend.Settings{}) }

// FuzzLaunch says that wrong steps are refused, not run into.
func FuzzLaunch(f *testing.F) { backendtest.FuzzLaunch(f, ref.Opener{}, backend.Settings{}) }
