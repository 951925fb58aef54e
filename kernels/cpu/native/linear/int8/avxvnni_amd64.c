/* avxvnni_amd64.c: Linear on int8 activations with AVX-VNNI, for the CPUs that have it without
 * AVX-512. */
#define DOT 1
#include "avx2.h"

const vapp_linear_kernel *vapp_linear_int8_avxvnni(int format) {
	(void)format;
	return &kernel;
}
