package cpu

import kcpu "vapp.dev/kernels/cpu"

// The instruction sets, as Settings.Variant names them.
const (
	generic    = kcpu.Generic
	avx2       = kcpu.AVX2
	avx512     = kcpu.AVX512
	avx512bf16 = kcpu.AVX512BF16
	amx        = kcpu.AMX
	neon       = kcpu.NEON
	dotprod    = kcpu.DotProd
	i8mm       = kcpu.I8MM
)
