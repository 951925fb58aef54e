/* amx_quant_tiles_amd64.c: Linear for quantized weights with AMX. */
#include "amx_quant_tiles.h"

const vapp_linear_kernel *vapp_linear_amx_quant(int format, int outside) { return kernel_of(format, outside); }
