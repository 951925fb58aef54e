/* amx_amd64.c: Linear with AMX. F32 and F16 use the exact kernel of AVX-512, quantized weights
 * those of amx_quant.h. */
#include "amx_bf16.h"

#include "amx_quant.h"

const vapp_linear_kernel *vapp_linear_amx(int format) {
	if (format == VAPP_BF16) return &bf16_kernel;
	return format == VAPP_F32 || format == VAPP_F16 ? vapp_linear_avx512(format) : vapp_linear_amx_quant(format, 0);
}
