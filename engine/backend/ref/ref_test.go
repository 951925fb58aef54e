package ref_test

import (
	"testing"

	"vapp.dev/engine/backend"
	"vapp.dev/engine/backend/backendtest"
	"vapp.dev/engine/backend/ref"
)

// TestSuite runs the suite that every backend has to pass: a third of its cases, with the tag soak all.
func TestSuite(t *testing.T) {
	if testing.Short() {
		t.Skip("not run: -short leaves it out, make test runs it")
	}
	backendtest.Suite{Opener: ref.Opener{}, Every: func(backend.Settings) int { return 3 }}.Run(t)
}

// TestFP8Activations tests products of fp8 weights with inputs rounded to fp8, with scales by
// row and by block, for single matrices and for experts.
func TestFP8Activations(t *testing.T) {
	if testing.Short() {
		t.Skip("not run: -short leaves it out, make test runs it")
	}
	s := backendtest.Suite{Opener: ref.Opener{}, Settings: backend.Settings{Activations: backend.FP8Activations}}
	s.Part(t, "linear of scaled weights", 1)
	s.Part(t, "experts", 1)
}

func BenchmarkOps(b *testing.B) { backendtest.Bench(b, ref.Opener{}, backend.Settings{}) }

// FuzzLaunch: wrong steps are rejected and not run.
func FuzzLaunch(f *testing.F) { backendtest.FuzzLaunch(f, ref.Opener{}, backend.Settings{}) }
