package cpu

import (
	"errors"

	"vapp.dev/kernels/cpu/isa"
)

// The variants; package isa lists the instructions of each.
const (
	Generic    = isa.Generic
	AVX2       = isa.AVX2
	AVX512     = isa.AVX512
	AVX512BF16 = isa.AVX512BF16
	AMX        = isa.AMX
	NEON       = isa.NEON
	DotProd    = isa.DotProd
	I8MM       = isa.I8MM
)

// Architecture returns the architecture, as runtime.GOARCH names it, of a variant; "" for Generic.
func Architecture(variant string) string { return isa.Architecture(variant) }

// Variants returns the variants that this process may run, the best first. On a processor with
// AMX it asks the system for the tile registers.
func Variants() []string { return isa.Variants() }

// MultiplyAdds reports whether decode steps of attention with avx512bf16 take less time with
// multiply-adds than with VDPBF16PS: on processors with AMX, which are Intel's.
func MultiplyAdds() bool { return isa.HasTiles() }

// AMXRefused returns why this process may not run AMX on a processor that has it. It returns
// nil if the process may, or the processor has no AMX.
func AMXRefused() error {
	err := isa.Tiles()
	if errors.Is(err, isa.ErrNoAMX) {
		return nil
	}
	return err
}
