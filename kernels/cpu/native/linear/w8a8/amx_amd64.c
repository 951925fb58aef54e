/* amx_amd64.c: the kernel of w8a8.h with AMX-INT8. */
#include "amx_body.h"

const vapp_linear_kernel *vapp_linear_w8a8_amx(void) { return &kernel; }
