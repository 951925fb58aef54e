/* int15_dotprod_arm64.c: Linear on activations of 15 bits with SDOT. */
#define PLANES 2
#define ARM_SET 1
#include "neon.h"

const vapp_linear_kernel *vapp_linear_int15_dotprod(int format) { return int8_format(format) ? &kernel : NULL; }
