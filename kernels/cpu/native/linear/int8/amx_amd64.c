/* amx_amd64.c: Linear on int8 activations with AMX-INT8. A CPU without VNNI uses the vector
 * kernel, which gives the same bits. */
#include "amx_body.h"

const vapp_linear_kernel *vapp_linear_int8_amx(int format) {
	if (!int8_format(format)) return NULL;
	return __builtin_cpu_supports("avx512vnni") ? &kernel : vapp_linear_int8_avx512(format);
}
