/* amx_soft_amd64.c: the kernel of AMX-INT8 on tiles in memory, for tests. */
#define VAPP_SOFT_TILES
#include "amx_body.h"

const vapp_linear_kernel *vapp_linear_w8a8_amx_soft(void) { return &kernel; }
