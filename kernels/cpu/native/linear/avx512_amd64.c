/* linear_avx512_amd64.c: Linear with AVX-512. */
#define FN __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,f16c")))
#define TILE 12
#define SLIM 2 /* 24 sums, 2 weights and an x take 27 of 32 registers */
#define WIDE_ROWS 2
#define PAIR 2 /* panels of one row at once */
#include "linear_vec512.h"

#include "linear_body.h"

static const vapp_linear_kernel kernel = {prepare, 2, run, vapp_linear_row};

const vapp_linear_kernel *vapp_linear_avx512(int format) {
	(void)format;
	return &kernel;
}
