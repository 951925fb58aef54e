/* avx2_amd64.c: Linear with AVX2, FMA and F16C. */
#include "target_avx2.h"

#include "body.h"

static const vapp_linear_kernel kernel = {prepare, 2, run, vapp_linear_row};

const vapp_linear_kernel *vapp_linear_avx2(int format) {
	(void)format;
	return &kernel;
}
