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

// TestTilesAsked: a device of variant amx is opened only after the process has requested the
// tile registers.
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

// TestTilesRefused: if the system denies the tile registers, the default is the next variant,
// and a profile that sets amx gets the reason.
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
