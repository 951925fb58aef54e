// Package isa lists the variants of the kernels that this process may run: the processor must
// have their instructions, and for AMX the system must have granted the tile registers. It is
// the only place that asks the system for them.
//
// It must not import the kernels: package native asks it before it returns a kernel of AMX.
// Start reading at Variants and Tiles.
package isa

import (
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"

	"golang.org/x/sys/cpu"
)

// The variants, as profiles name them.
const (
	Generic    = "generic"    // portable C
	AVX2       = "avx2"       // AVX2, FMA, F16C
	AVX512     = "avx512"     // AVX-512 F, BW, DQ, VL
	AVX512BF16 = "avx512bf16" // AVX512 and AVX-512 BF16, VBMI, VNNI
	AMX        = "amx"        // AVX512 and AVX-512 BF16, VBMI, AMX-TILE, AMX-BF16, AMX-INT8
	NEON       = "neon"       // Advanced SIMD, which every processor of 64-bit ARM has
	DotProd    = "dotprod"    // NEON and SDOT: Graviton 2, Altra
	I8MM       = "i8mm"       // DotProd and SMMLA, BFMMLA: Graviton 3, AmpereOne
)

// ErrNoAMX is the error of Tiles on a processor without AMX.
var ErrNoAMX = errors.New("this processor has no AMX")

// RefusedError is the error of Tiles if the processor has AMX but the system does not let this
// process use it.
type RefusedError struct{ Err error }

func (e *RefusedError) Error() string {
	return fmt.Sprintf("the system refuses the tile registers of AMX (arch_prctl: %v); Linux 5.16 or later grants them, unless a seccomp filter or a hypervisor does not", e.Err)
}

func (e *RefusedError) Unwrap() error { return e.Err }

// Processor is the processor that a process runs on.
type Processor struct {
	// Variants lists those whose instructions it has, the best first.
	Variants []string
	// Ask asks the system to let all threads of this process use the tile registers.
	Ask func() error

	once  sync.Once
	tiles error
	asked atomic.Int32
}

// machine is the processor of this machine.
var machine = sync.OnceValue(func() *Processor { return &Processor{Variants: detect(), Ask: requestTiles} })

// replaced is the processor that a test uses instead of machine; or nil.
var replaced atomic.Pointer[Processor]

// Replace makes this process use p, for a test, until restore is called.
func Replace(p *Processor) (restore func()) {
	old := replaced.Swap(p)
	return func() { replaced.Store(old) }
}

func current() *Processor {
	if p := replaced.Load(); p != nil {
		return p
	}
	return machine()
}

// Variants returns the variants that this process may run, the best first.
func Variants() []string {
	p := current()
	out := slices.Clone(p.Variants)
	if p.Tiles() != nil {
		out = slices.DeleteFunc(out, func(v string) bool { return v == AMX })
	}
	return out
}

// Has reports whether this process may run a variant.
func Has(variant string) bool { return slices.Contains(Variants(), variant) }

// Tiles returns nil if this process may use the tile registers of AMX, else ErrNoAMX or a
// *RefusedError. The first call asks the system.
func Tiles() error { return current().Tiles() }

// Tiles is the function Tiles for a process on p.
func (p *Processor) Tiles() error {
	if !slices.Contains(p.Variants, AMX) {
		return ErrNoAMX
	}
	p.once.Do(func() {
		p.asked.Add(1)
		if err := p.Ask(); err != nil {
			p.tiles = &RefusedError{err}
		}
	})
	return p.tiles
}

// HasTiles reports whether the processor has the tile registers, granted or not.
func HasTiles() bool { return slices.Contains(current().Variants, AMX) }

// Asked returns how often the system was asked for the tile registers.
func (p *Processor) Asked() int { return int(p.asked.Load()) }

// detect returns the variants whose instructions this processor has. F16C has no flag in
// x/sys/cpu: every processor with AVX2 has it.
func detect() []string {
	if runtime.GOARCH == "arm64" {
		return detectARM()
	}
	x := &cpu.X86
	out := []string{Generic}
	if !x.HasAVX2 || !x.HasFMA {
		return out
	}
	out = append([]string{AVX2}, out...)
	if !x.HasAVX512F || !x.HasAVX512BW || !x.HasAVX512DQ || !x.HasAVX512VL {
		return out
	}
	out = append([]string{AVX512}, out...)
	if x.HasAVX512BF16 && x.HasAVX512VBMI && x.HasAVX512VNNI {
		out = append([]string{AVX512BF16}, out...)
	}
	if x.HasAVX512BF16 && x.HasAVX512VBMI && x.HasAMXTile && x.HasAMXBF16 && x.HasAMXInt8 {
		out = append([]string{AMX}, out...)
	}
	return out
}

// detectARM is detect on 64-bit ARM.
func detectARM() []string {
	a := &cpu.ARM64
	out := []string{Generic}
	if !a.HasASIMD {
		return out
	}
	out = append([]string{NEON}, out...)
	if !a.HasASIMDDP {
		return out
	}
	out = append([]string{DotProd}, out...)
	if a.HasI8MM && bf16OfARM {
		out = append([]string{I8MM}, out...)
	}
	return out
}
