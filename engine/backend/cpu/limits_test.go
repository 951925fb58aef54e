//go:build cgo && linux

package cpu_test

import (
	"testing"
	"time"

	"vapp.dev/engine/backend/cpu"
)

// TestMeasureLimits asks for sane figures: a rate beyond what hardware has means
// that the compiler removed the work.
func TestMeasureLimits(t *testing.T) {
	if testing.Short() {
		t.Skip("not run: -short leaves it out, make test runs it")
	}
	l, err := cpu.MeasureLimits(1, 30*time.Millisecond)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%+v", l)
	for what, x := range map[string]float64{"read bytes": l.Read, "f32": l.F32, "bf16": l.BF16} {
		if !(x > 1e7 && x < 2e13) {
			t.Errorf("%s: %g in a second", what, x)
		}
	}
	if l.Int8 != 0 && !(l.Int8 > 1e7 && l.Int8 < 2e13) {
		t.Errorf("int8: %g in a second", l.Int8)
	}
	if l.F32 > 1e12 || l.Read > 1e12 {
		t.Errorf("one core does %g flop and reads %g bytes in a second", l.F32, l.Read)
	}
}
