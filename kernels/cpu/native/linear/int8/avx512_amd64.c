/* avx512_amd64.c: Linear on int8 activations with AVX-512 VNNI. A CPU with AVX-512 but without
 * VNNI uses the code of AVX2, which gives the same bits. */
#include "vnni.h"

const vapp_linear_kernel *vapp_linear_int8_avx512(int format) {
	if (!int8_format(format)) return NULL;
	return __builtin_cpu_supports("avx512vnni") ? &kernel : vapp_linear_int8_avx2(format);
}
