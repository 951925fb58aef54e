/* avx512_amd64.c: Linear with AVX-512. */
#include "target_avx512.h"

#include "body.h"

static const vapp_linear_kernel kernel = {prepare, 2, run, vapp_linear_row};

const vapp_linear_kernel *vapp_linear_avx512(int format) {
	(void)format;
	return &kernel;
}
