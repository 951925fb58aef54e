/* neon_arm64.c: Linear on int8 activations with NEON. */
#define PLANES 1
#define ARM_SET 0
#include "neon.h"

const vapp_linear_kernel *vapp_linear_int8_neon(int format) { return int8_format(format) ? &kernel : NULL; }
