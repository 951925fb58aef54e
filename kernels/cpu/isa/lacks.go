package isa

import (
	"slices"

	"golang.org/x/sys/cpu"
)

// feature is an instruction set extension of x86-64 or ARM and whether the processor has it.
type feature struct {
	name string
	has  *bool
}

// features lists what each variant needs beyond those that it includes.
var features = map[string][]feature{
	AVX2:       {{"AVX2", &cpu.X86.HasAVX2}, {"FMA", &cpu.X86.HasFMA}},
	AVX512:     {{"AVX512F", &cpu.X86.HasAVX512F}, {"AVX512BW", &cpu.X86.HasAVX512BW}, {"AVX512DQ", &cpu.X86.HasAVX512DQ}, {"AVX512VL", &cpu.X86.HasAVX512VL}},
	AVX512BF16: {{"AVX512_BF16", &cpu.X86.HasAVX512BF16}, {"AVX512_VBMI", &cpu.X86.HasAVX512VBMI}, {"AVX512_VNNI", &cpu.X86.HasAVX512VNNI}},
	AMX:        {{"AVX512_BF16", &cpu.X86.HasAVX512BF16}, {"AVX512_VBMI", &cpu.X86.HasAVX512VBMI}, {"AMX_TILE", &cpu.X86.HasAMXTile}, {"AMX_BF16", &cpu.X86.HasAMXBF16}, {"AMX_INT8", &cpu.X86.HasAMXInt8}},
	NEON:       {{"ASIMD", &cpu.ARM64.HasASIMD}},
	DotProd:    {{"ASIMDDP", &cpu.ARM64.HasASIMDDP}},
	I8MM:       {{"I8MM", &cpu.ARM64.HasI8MM}, {"BF16", &bf16OfARM}},
}

// includes maps a variant to the one whose instructions it has too.
var includes = map[string]string{AVX512: AVX2, AVX512BF16: AVX512, AMX: AVX512, DotProd: NEON, I8MM: DotProd}

var (
	amd64 = []string{AMX, AVX512BF16, AVX512, AVX2}
	arm64 = []string{I8MM, DotProd, NEON}

	// All lists the variants of all architectures, the best of each first.
	All = slices.Concat(amd64, arm64, []string{Generic})
)

// Architecture returns the architecture, as runtime.GOARCH names it, whose instructions a variant
// has; "" for Generic and for names that are no variant.
func Architecture(variant string) string {
	switch {
	case slices.Contains(amd64, variant):
		return "amd64"
	case slices.Contains(arm64, variant):
		return "arm64"
	}
	return ""
}

// Lacks returns the extensions that a variant needs and this processor does not have.
func Lacks(variant string) []string {
	var out []string
	if of := includes[variant]; of != "" {
		out = Lacks(of)
	}
	for _, f := range features[variant] {
		if !*f.has {
			out = append(out, f.name)
		}
	}
	return out
}
