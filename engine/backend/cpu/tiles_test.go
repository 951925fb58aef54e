package cpu

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"vapp.dev/engine/backend"
	"vapp.dev/kernels/cpu/isa"
	"vapp.dev/kernels/cpu/isatest"
)

// TestTilesAsked: this binary opens devices of variant amx only after it has asked the system
// for the tile registers.
func TestTilesAsked(t *testing.T) {
	isatest.Asks(t, func() bool {
		f, err := Opener{}.Probe()
		if err != nil {
			t.Fatal(err)
		}
		l, err := newLayout(f, backend.Settings{})
		return err == nil && slices.Contains(f.Variants, amx) && l.variant == amx
	})
}

// TestTilesRefused: where the system refuses the tile registers, auto takes the next variant,
// and a profile that sets amx reads why.
func TestTilesRefused(t *testing.T) {
	why := errors.New("function not implemented")
	defer isa.Replace(&isa.Processor{Variants: []string{amx, avx512bf16, generic}, Ask: func() error { return why }})()
	f, err := Opener{}.Probe()
	if err != nil {
		t.Fatal(err)
	}
	if l, err := newLayout(f, backend.Settings{}); err != nil || l.variant != avx512bf16 {
		t.Errorf("auto takes %q, %v", l.variant, err)
	}
	_, err = newLayout(f, backend.Settings{Variant: amx})
	if !errors.Is(err, backend.ErrUnsupported) || !strings.Contains(err.Error(), "this machine has avx512bf16, generic; the system refuses the tile registers of AMX (arch_prctl: function not implemented)") {
		t.Errorf("variant amx: %v", err)
	}
	f.Variants = []string{amx, generic}
	if d, err := (Opener{}).Open(f, backend.Settings{Variant: amx}, backend.Reservation{}); err == nil {
		d.Close()
		t.Error("a device of variant amx was opened without the tile registers")
	}
}
