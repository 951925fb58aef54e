//go:build cgo && linux

package cpu_test

import (
	"slices"
	"testing"

	"vapp.dev/engine/backend"
	"vapp.dev/engine/backend/backendtest"
	"vapp.dev/engine/backend/cpu"
)

// TestSuite runs the backends' suite on every instruction set and on several
// numbers of threads. A variant that this machine lacks is skipped, by name.
func TestSuite(t *testing.T) {
	facts, err := cpu.Opener{}.Probe()
	if err != nil {
		t.Fatal(err)
	}
	for _, variant := range []string{"generic", "avx2", "avx512", "amx"} {
		t.Run(variant, func(t *testing.T) {
			if !slices.Contains(facts.Variants, variant) {
				t.Skipf("not run: this machine has %v", facts.Variants)
			}
			var settings []backend.Settings
			for threads := 1; threads <= 3; threads++ {
				settings = append(settings, backend.Settings{Variant: variant, Threads: threads})
			}
			backendtest.Run(t, cpu.Opener{}, settings...)
		})
	}
}
