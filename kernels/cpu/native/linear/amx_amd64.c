/* linear_amx_amd64.c: Linear with AMX, for the formats whose weights fit bf16 or are
 * coarser; F32 and F16 stay exact, as with AVX-512. */
#include "amx_body.h"

const vapp_linear_kernel *vapp_linear_amx(int format) {
	return format == VAPP_F32 || format == VAPP_F16 ? vapp_linear_avx512(format) : &kernel;
}
