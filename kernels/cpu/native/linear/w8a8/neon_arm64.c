/* neon_arm64.c: the kernel of w8a8.h with NEON. */
#define ARM_SET 0
#include "neon.h"

const vapp_linear_kernel *vapp_linear_w8a8_neon(void) { return &kernel; }
