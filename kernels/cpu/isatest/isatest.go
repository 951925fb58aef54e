// Package isatest checks that a test binary asks the system for the tile registers of AMX
// before it can reach kernels that use them, on any machine.
package isatest

import (
	"errors"
	"testing"

	"vapp.dev/kernels/cpu/isa"
)

// Asks checks found, which reports whether the caller's tests would run kernels of AMX. On a
// processor with AMX it must have asked the system exactly once before it reports them, and
// report none where the system refuses; elsewhere it must not ask. No test may run beside it,
// and found runs no kernel: this machine may have no AMX.
func Asks(t *testing.T, found func() bool) {
	t.Helper()
	all := []string{isa.AMX, isa.AVX512BF16, isa.AVX512, isa.AVX2, isa.Generic}
	refusal := errors.New("refused")
	for _, c := range []struct {
		name     string
		variants []string
		answer   error
		want     bool
		asked    int
	}{
		{"granted", all, nil, true, 1},
		{"refused", all, refusal, false, 1},
		{"no AMX", all[1:], nil, false, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Setenv("VAPP_ISATEST", "1") // fails in a test that runs beside others
			p := &isa.Processor{Variants: c.variants, Ask: func() error { return c.answer }}
			defer isa.Replace(p)()
			for range 2 {
				if got := found(); got != c.want || p.Asked() != c.asked {
					t.Errorf("kernels of AMX are found: %v after asking %d times, want %v after %d", got, p.Asked(), c.want, c.asked)
				}
			}
		})
	}
}
