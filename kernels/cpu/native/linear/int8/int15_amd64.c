/* int15_amd64.c: Linear on activations of 15 bits with AVX-512 VNNI. VAPP_AVX512_BF16 uses it
 * for the formats whose codes are integers: two products of bytes take the time of one product
 * of bf16 pairs, and the codes need no conversion to bf16. */
#define PLANES 2
#include "vnni.h"

const vapp_linear_kernel *vapp_linear_int15(int format) {
	(void)format;
	return &kernel;
}
