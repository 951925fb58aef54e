#include "pixels.h"

#include <stddef.h>

const vapp_pixels *vapp_pixels_of(int set)
{
#if defined(__x86_64__)
	static const vapp_pixels avx2 = {vapp_pixels_mix_avx2, vapp_pixels_rows_avx2}, avx512 = {vapp_pixels_mix_avx512, vapp_pixels_rows_avx512};
	return set == VAPP_PIXELS_AVX2 ? &avx2 : set == VAPP_PIXELS_AVX512 ? &avx512 : NULL;
#elif defined(__aarch64__)
	static const vapp_pixels neon = {vapp_pixels_mix_neon, vapp_pixels_rows_neon};
	return set == VAPP_PIXELS_NEON ? &neon : NULL;
#else
	(void)set;
	return NULL;
#endif
}
