/* int15_i8mm_arm64.c: Linear on activations of 15 bits with SMMLA. */
#define PLANES 2
#define ARM_SET 2
#include "neon.h"

const vapp_linear_kernel *vapp_linear_int15_i8mm(int format) { return int8_format(format) ? &kernel : NULL; }
