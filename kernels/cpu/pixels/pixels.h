/* pixels.h: resampling of images, for each instruction set. */
#ifndef VAPP_CPU_PIXELS_H
#define VAPP_CPU_PIXELS_H
#include <stdint.h>

/* vapp_lines is lines of bytes, stride bytes apart: line i is at i mod ring. */
typedef struct {
	const uint8_t *at;
	int64_t stride, ring;
} vapp_lines;

/* mix sets out [n] to the sum of the lines from first on, times weights w [taps], in units of 2^−bits. */
typedef void (*vapp_pixels_mix)(uint8_t *out, int64_t n, const vapp_lines *in, int64_t first, const int32_t *w, int64_t taps, int bits);

/* rows resamples sixteen rows of pixels of three bytes. Pixel x of the result is the sum of pixels
 * first[x] and following times the weights w[end[x−1]:end[x]]. tile has 48 bytes for each of its
 * `pixels` pixels. */
typedef void (*vapp_pixels_rows)(uint8_t *const out[16], const uint8_t *const in[16], int64_t n, const int32_t *first, const int32_t *end, const int32_t *w, int bits,
	uint8_t *tile, int64_t pixels);

typedef struct {
	vapp_pixels_mix mix;
	vapp_pixels_rows rows;
} vapp_pixels;

enum { VAPP_PIXELS_AVX2, VAPP_PIXELS_AVX512, VAPP_PIXELS_NEON };

/* vapp_pixels_of returns the kernels of an instruction set, or NULL if this build has none. The caller has
 * checked that the CPU has the set. */
const vapp_pixels *vapp_pixels_of(int set);

#define VAPP_PIXELS_DECLARE(set) \
	void vapp_pixels_mix_##set(uint8_t *, int64_t, const vapp_lines *, int64_t, const int32_t *, int64_t, int); \
	void vapp_pixels_rows_##set(uint8_t *const[16], const uint8_t *const[16], int64_t, const int32_t *, const int32_t *, const int32_t *, int, uint8_t *, int64_t);
VAPP_PIXELS_DECLARE(avx2)
VAPP_PIXELS_DECLARE(avx512)
VAPP_PIXELS_DECLARE(neon)

#endif
