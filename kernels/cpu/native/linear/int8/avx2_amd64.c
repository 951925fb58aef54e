/* avx2_amd64.c: Linear on int8 activations with AVX2. */
#define DOT 0
#include "avx2.h"

const vapp_linear_kernel *vapp_linear_int8_avx2(int format) {
	if (!int8_format(format)) return NULL;
	return __builtin_cpu_supports("avxvnni") ? vapp_linear_int8_avxvnni(format) : &kernel;
}

const vapp_linear_kernel *vapp_linear_int8_pairs(int format) { return int8_format(format) ? &kernel : NULL; }
