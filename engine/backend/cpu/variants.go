package cpu

import "golang.org/x/sys/cpu"

// The instruction sets, as Settings.Variant names them.
const (
	generic    = "generic"    // portable C
	avx2       = "avx2"       // AVX2, FMA, F16C
	avx512     = "avx512"     // AVX-512 F, BW, DQ, VL
	avx512bf16 = "avx512bf16" // avx512 and AVX-512 BF16, VBMI, VNNI
	amx        = "amx"        // avx512 and AVX-512 BF16, AMX-TILE, AMX-BF16, AMX-INT8
)

// variants lists what this machine can run, the best first. F16C has no flag in
// x/sys/cpu: every processor with AVX2 has it.
func variants() []string {
	x := &cpu.X86
	out := []string{generic}
	if !x.HasAVX2 || !x.HasFMA {
		return out
	}
	out = append([]string{avx2}, out...)
	if !x.HasAVX512F || !x.HasAVX512BW || !x.HasAVX512DQ || !x.HasAVX512VL {
		return out
	}
	out = append([]string{avx512}, out...)
	if x.HasAVX512BF16 && x.HasAVX512VBMI && x.HasAVX512VNNI {
		out = append([]string{avx512bf16}, out...)
	}
	if x.HasAVX512BF16 && x.HasAMXTile && x.HasAMXBF16 && x.HasAMXInt8 && tilesAllowed() {
		out = append([]string{amx}, out...)
	}
	return out
}
