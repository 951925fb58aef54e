package ref_test

import (
	"testing"

	"vapp.dev/engine/backend"
	"vapp.dev/engine/backend/backendtest"
	"vapp.dev/engine/backend/ref"
)

// TestSuite is what every backend passes.
func TestSuite(t *testing.T) {
	if testing.Short() {
		t.Skip("not run: -short leaves it out, make test runs it")
	}
	backendtest.Run(t, ref.Opener{})
}

// TestFP8Activations: products of weights in fp8 with inputs that are rounded to it, by row and by
// block, of one matrix and of experts.
func TestFP8Activations(t *testing.T) {
	if testing.Short() {
		t.Skip("not run: -short leaves it out, make test runs it")
	}
	s := backendtest.Suite{Opener: ref.Opener{}, Settings: backend.Settings{Activations: backend.FP8Activations}}
	s.Part(t, "linear of scaled weights", 1)
	s.Part(t, "experts", 1)
}

func BenchmarkOps(b *testing.B) { backendtest.Bench(b, ref.Opener{}, backend.Settings{}) }

// FuzzLaunch says that wrong steps are refused, not run into.
func FuzzLaunch(f *testing.F) { backendtest.FuzzLaunch(f, ref.Opener{}, backend.Settings{}) }
