/* linear.c: the table of Linear kernels. */
#include "linear/amx_quant.h"
#include "linear/int8/int8.h"
#include "linear/stored.h"
#include "linear/w8a8/w8a8.h"

static int known(int format) {
	switch (format % VAPP_SCALES) {
	case VAPP_I8:
	case VAPP_NVFP4:
	case VAPP_F8_E4M3:
	case VAPP_F8_E5M2: return 1;
	}
	switch (format) {
	case VAPP_MXFP4:
	case VAPP_F32:
	case VAPP_F16:
	case VAPP_BF16:
	case VAPP_Q8_0:
	case VAPP_Q4_0:
	case VAPP_Q4_1:
	case VAPP_I4: return 1;
	}
	return in_blocks(format);
}

const vapp_linear_kernel *vapp_linear_for(int variant, int format) {
	if (stored_block(format)) return vapp_linear_stored(variant);
	if (!known(format)) return NULL;
	if (variant >= VAPP_W8A8) return vapp_linear_w8a8(variant - VAPP_W8A8, format);
	switch (variant) {
	case VAPP_GENERIC: return vapp_linear_generic(format);
	case VAPP_INT8 + VAPP_GENERIC: return vapp_linear_int8_generic(format);
#if defined(__x86_64__)
	case VAPP_AVX2: return vapp_linear_avx2(format);
	case VAPP_AVX512: return vapp_linear_avx512(format);
	case VAPP_AVX512_BF16: return int8_format(format) ? vapp_linear_int15(format) : vapp_linear_bf16(format);
	case VAPP_AMX: return vapp_linear_amx(format);
	case VAPP_AMX_OUTSIDE: return vapp_linear_amx_quant(format, 1);
#if !defined(VAPP_NO_SOFT_TILES)
	case VAPP_AMX_SOFT: return vapp_linear_amx_soft(format);
	case VAPP_AMX_OUTSIDE_SOFT: return vapp_linear_amx_quant_soft(format, 1);
#endif
	case VAPP_INT8 + VAPP_AVX2: return vapp_linear_int8_avx2(format);
	case VAPP_INT8 + VAPP_AVX2_PAIRS: return vapp_linear_int8_pairs(format);
	case VAPP_INT8 + VAPP_AVX512:
	case VAPP_INT8 + VAPP_AVX512_BF16: return vapp_linear_int8_avx512(format);
#elif defined(__aarch64__)
	case VAPP_NEON: return vapp_linear_neon(format);
	case VAPP_DOTPROD: return int8_format(format) ? vapp_linear_int15_dotprod(format) : vapp_linear_neon(format);
	case VAPP_I8MM:
		if (format == VAPP_BF16) return vapp_linear_bfmmla(format);
		return int8_format(format) ? vapp_linear_int15_i8mm(format) : vapp_linear_neon(format);
	case VAPP_INT8 + VAPP_NEON: return vapp_linear_int8_neon(format);
	case VAPP_INT8 + VAPP_DOTPROD: return vapp_linear_int8_dotprod(format);
	case VAPP_INT8 + VAPP_I8MM: return vapp_linear_int8_i8mm(format);
#endif
	}
	return NULL;
}
