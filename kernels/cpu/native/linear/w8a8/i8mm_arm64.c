/* i8mm_arm64.c: the kernel of w8a8.h with SMMLA. */
#define ARM_SET 2
#include "neon.h"

const vapp_linear_kernel *vapp_linear_w8a8_i8mm(void) { return &kernel; }
