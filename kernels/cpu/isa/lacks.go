package isa

import "golang.org/x/sys/cpu"

// feature is an instruction set extension of x86-64 and whether the processor has it.
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
}

// includes maps a variant to the one whose instructions it has too.
var includes = map[string]string{AVX512: AVX2, AVX512BF16: AVX512, AMX: AVX512}

// All lists the variants, the best first.
var All = []string{AMX, AVX512BF16, AVX512, AVX2, Generic}

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
