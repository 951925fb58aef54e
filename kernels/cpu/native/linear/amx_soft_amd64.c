/* amx_soft_amd64.c: the AMX kernel on tiles in memory, for tests on machines without AMX. It
 * needs the other instructions of VAPP_AMX. */
#define VAPP_SOFT_TILES
#include "amx_bf16.h"

#include "amx_quant.h"

const vapp_linear_kernel *vapp_linear_amx_soft(int format) {
	if (format == VAPP_BF16) return &bf16_kernel;
	return format == VAPP_F32 || format == VAPP_F16 ? vapp_linear_avx512(format) : vapp_linear_amx_quant_soft(format, 0);
}
