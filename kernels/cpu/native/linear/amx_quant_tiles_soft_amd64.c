/* amx_quant_tiles_soft_amd64.c: amx_quant_tiles_amd64.c on tiles in memory, for tests on machines
 * without AMX. It needs the other instructions of VAPP_AMX. */
#define VAPP_SOFT_TILES
#include "amx_quant_tiles.h"

const vapp_linear_kernel *vapp_linear_amx_quant_soft(int format, int outside) { return kernel_of(format, outside); }
