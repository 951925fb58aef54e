//go:build cgo && linux

package cpu_test

import (
	"fmt"
	"testing"

	"vapp.dev/engine/backend"
	"vapp.dev/engine/backend/backendtest"
	"vapp.dev/engine/backend/cpu"
)

// TestSuite runs the backends' suite on every instruction set: the best one with one and
// three threads, the others with the numbers below. A variant that this machine lacks is
// skipped, by name. All cases run on the best instruction set with three threads, some of them on
// the others; with the tag soak all run on each.
func TestSuite(t *testing.T) {
	facts, err := cpu.Opener{}.Probe()
	if err != nil {
		t.Fatal(err)
	}
	threads := map[string][]int{"generic": {1}, "avx2": {2}, "avx512": {2}, "avx512bf16": {2}, "amx": {2}, "neon": {2}, "dotprod": {2}, "i8mm": {2}}
	threads[facts.Variants[0]] = []int{1, 3}
	var settings []backend.Settings
	for _, variant := range []string{"generic", "avx2", "avx512", "avx512bf16", "amx", "neon", "dotprod", "i8mm"} {
		for _, n := range threads[variant] {
			settings = append(settings, backend.Settings{Variant: variant, Threads: n})
		}
	}
	settings = append(settings, backend.Settings{Variant: facts.Variants[0], Threads: 2, Activations: "int8"})
	if testing.Short() {
		settings = []backend.Settings{{Variant: facts.Variants[0], Threads: 3}}
	}
	every := func(s backend.Settings) int {
		switch {
		case s.Variant == "generic":
			return 5
		case s.Activations != "":
			return 2
		case s.Variant != facts.Variants[0], s.Threads == 1:
			return 3
		}
		return 1
	}
	backendtest.Suite{Opener: cpu.Opener{}, Every: every}.Run(t, settings...)
}

// BenchmarkOps measures ops on the best instruction set, on one thread and on two.
func BenchmarkOps(b *testing.B) {
	for n := 1; n <= 2; n++ {
		b.Run(fmt.Sprintf("threads=%d", n), func(b *testing.B) { backendtest.Bench(b, cpu.Opener{}, backend.Settings{Threads: n}) })
	}
}
