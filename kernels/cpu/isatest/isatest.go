// Package isatest checks that a test binary asks the system for the tile registers of AMX
// before it can reach kernels that use them. The check needs no AMX.
//
// It must not run a kernel. Start reading at Asks.
package isatest

import (
	"errors"
	"testing"

	"vapp.dev/kernels/cpu/isa"
)

// Asks checks found, which reports whether the caller's tests would run kernels of AMX. On a
// processor with AMX, found must ask the system exactly once first, and report false if the
// system refuses. On other processors it must not ask. No other test may run at the same time,
// and found must not run a kernel: this machine may have no AMX.
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
			t.Setenv("VAPP_ISATEST", "1") // panics in a parallel test
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
