/* dotprod_arm64.c: the kernel of w8a8.h with SDOT. */
#define ARM_SET 1
#include "neon.h"

const vapp_linear_kernel *vapp_linear_w8a8_dotprod(void) { return &kernel; }
