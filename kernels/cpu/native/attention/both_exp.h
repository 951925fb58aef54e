/* both_exp.h: the exponential of attention without a mask. */
#ifndef VAPP_CPU_ATTENTION_BOTH_EXP_H
#define VAPP_CPU_ATTENTION_BOTH_EXP_H
#include <stdint.h>

#include "../shared/inline.h"
#include "../shared/vec.h"

typedef int32_t both_words __attribute__((vector_size(4 * VW)));

/* exp2_of returns 2^x for x ≤ 0: a polynomial of degree 5 around whole numbers, exact at them. The
 * relative error is below 2·10⁻⁷. Below −126 it returns 2⁻¹²⁶; a NaN stays a NaN. */
INLINE vf exp2_of(vf x)
{
	const vf magic = vf_set(12582912.0f); /* 1.5 · 2^23: the whole number is in the low bits */
	vf y = vf_max(vf_set(-126), x), n = y + magic, r = y - (n - magic);
	vf p = vf_set(1.326472731e-3f);
	p = vf_fma(p, r, vf_set(9.671512991e-3f));
	p = vf_fma(p, r, vf_set(5.550733581e-2f));
	p = vf_fma(p, r, vf_set(2.402224243e-1f));
	p = vf_fma(p, r, vf_set(6.931470037e-1f));
	p = vf_fma(p, r, vf_set(1));
	return (vf)((both_words)p + ((both_words)n << 23));
}

#endif
