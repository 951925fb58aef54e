/* linear_int15_amd64.c: Linear on activations of 15 bits with AVX-512 VNNI: of what
 * VAPP_AVX512_BF16 multiplies, the formats whose codes are integers. That takes the time of two
 * products of bytes, which is that of one of bf16 pairs, and codes need not become bf16. */
#define PLANES 2
#include "vnni.h"

const vapp_linear_kernel *vapp_linear_int15(int format) {
	(void)format;
	return &kernel;
}
