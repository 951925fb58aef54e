#include "library.h"

#include <string.h>

/* Floats that are summed at once: they stay in the first cache. */
enum { BLOCK = 512 };

static float widen(uint16_t h) {
	uint32_t bits = (uint32_t)h << 16;
	float f;
	memcpy(&f, &bits, sizeof f);
	return f;
}

/* vapp_mpi_round rounds to the nearest bf16, ties to even. A NaN stays one. */
void vapp_mpi_round(uint16_t *restrict out, const float *restrict x, int64_t n) {
	for (int64_t i = 0; i < n; i++) {
		uint32_t bits;
		memcpy(&bits, &x[i], sizeof bits);
		uint32_t near = (bits + 0x7fff + (bits >> 16 & 1)) >> 16, nan = bits >> 16 | 0x40;
		out[i] = (uint16_t)((bits & 0x7fffffff) > 0x7f800000 ? nan : near);
	}
}

void vapp_mpi_sum(float *out, const void *const *terms, int ranks, int64_t n) {
	float sum[BLOCK];
	for (int64_t at = 0; at < n; at += BLOCK) {
		int64_t some = n - at < BLOCK ? n - at : BLOCK;
		memcpy(sum, (const float *)terms[0] + at, (size_t)some * sizeof *sum);
		for (int r = 1; r < ranks; r++) {
			const float *term = (const float *)terms[r] + at;
			for (int64_t i = 0; i < some; i++)
				sum[i] += term[i];
		}
		memcpy(out + at, sum, (size_t)some * sizeof *sum);
	}
}

void vapp_mpi_sum_bf16(float *out, const void *const *terms, int ranks, int64_t n) {
	float sum[BLOCK];
	for (int64_t at = 0; at < n; at += BLOCK) {
		int64_t some = n - at < BLOCK ? n - at : BLOCK;
		const uint16_t *first = (const uint16_t *)terms[0] + at;
		for (int64_t i = 0; i < some; i++)
			sum[i] = widen(first[i]);
		for (int r = 1; r < ranks; r++) {
			const uint16_t *term = (const uint16_t *)terms[r] + at;
			for (int64_t i = 0; i < some; i++)
				sum[i] += widen(term[i]);
		}
		memcpy(out + at, sum, (size_t)some * sizeof *sum);
	}
}
