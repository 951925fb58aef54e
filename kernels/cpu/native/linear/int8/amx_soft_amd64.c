/* amx_soft_amd64.c: the kernel of AMX-INT8 on tiles in memory, for tests on machines without
 * AMX. */
#define VAPP_SOFT_TILES
#include "amx_body.h"

const vapp_linear_kernel *vapp_linear_int8_amx_soft(int format) {
	return int8_format(format) && __builtin_cpu_supports("avx512vnni") ? &kernel : NULL;
}
