/* i8mm_arm64.c: Linear on int8 activations with SMMLA. */
#define PLANES 1
#define ARM_SET 2
#include "neon.h"

const vapp_linear_kernel *vapp_linear_int8_i8mm(int format) { return int8_format(format) ? &kernel : NULL; }
