/* body.h: resampling of one axis of an image, compiled once for each instruction set. A number of
 * the result is the sum of bytes times weights in whole numbers, rounded and cut to a byte, so
 * every set gives the same. Sixteen bytes are computed together: of a line, or of sixteen rows. */
#include <stdint.h>
#include <string.h>

#include "pixels.h"
#if VAPP_VECTOR > 128
#include <immintrin.h>
#else
#include <arm_neon.h>
#endif

#define JOIN2(a, b) a##b
#define JOIN(a, b) JOIN2(a, b)
#define NAME(f) JOIN(vapp_pixels_##f##_, VAPP_SET)
#define INLINE static inline __attribute__((always_inline))

typedef uint8_t bytes __attribute__((vector_size(16)));

/* sums is sixteen sums of 32 bits. */
#if VAPP_VECTOR == 512
typedef int32_t words __attribute__((vector_size(64)));
#define LINES 4 /* times sixteen bytes of a line that are computed together */
#elif VAPP_VECTOR == 256
typedef int32_t words __attribute__((vector_size(32)));
#define LINES 2
#else
typedef int32_t words __attribute__((vector_size(16)));
#define LINES 1
#endif
#define LANES ((int)(sizeof(words) / 4))
#define WORDS (16 / LANES)
typedef struct {
	words w[WORDS];
} sums;

INLINE words set(int32_t x) { return x - (words){0}; }

INLINE sums of(int32_t x)
{
	sums s;
	for (int i = 0; i < WORDS; i++)
		s.w[i] = set(x);
	return s;
}

/* widened returns sixteen bytes as numbers of 32 bits. */
INLINE sums widened(const uint8_t *p)
{
	sums s;
#if VAPP_VECTOR == 512
	s.w[0] = (words)_mm512_cvtepu8_epi32(_mm_loadu_si128((const __m128i *)p));
#elif VAPP_VECTOR == 256
	s.w[0] = (words)_mm256_cvtepu8_epi32(_mm_loadl_epi64((const __m128i *)p));
	s.w[1] = (words)_mm256_cvtepu8_epi32(_mm_loadl_epi64((const __m128i *)(p + 8)));
#else
	uint8x16_t x = vld1q_u8(p);
	uint16x8_t a = vmovl_u8(vget_low_u8(x)), b = vmovl_u8(vget_high_u8(x));
	s.w[0] = (words)vmovl_u16(vget_low_u16(a)), s.w[1] = (words)vmovl_u16(vget_high_u16(a));
	s.w[2] = (words)vmovl_u16(vget_low_u16(b)), s.w[3] = (words)vmovl_u16(vget_high_u16(b));
#endif
	return s;
}

INLINE sums plus(sums s, const uint8_t *p, words weight)
{
	sums x = widened(p);
	for (int i = 0; i < WORDS; i++)
		s.w[i] += x.w[i] * weight;
	return s;
}

/* rounded returns the bytes of sums in units of 2^−bits, to which half a unit was added. */
INLINE bytes rounded(sums s, int bits)
{
	const words none = set(0), most = set(255);
	for (int i = 0; i < WORDS; i++) {
		words w = s.w[i] >> bits, m = w > none;
		w &= m;
		m = w < most;
		s.w[i] = (w & m) | (most & ~m);
	}
#if VAPP_VECTOR == 512
	return (bytes)_mm512_cvtepi32_epi8((__m512i)s.w[0]);
#elif VAPP_VECTOR == 256
	__m256i x = _mm256_permute4x64_epi64(_mm256_packus_epi32((__m256i)s.w[0], (__m256i)s.w[1]), 0xd8);
	return (bytes)_mm_packus_epi16(_mm256_castsi256_si128(x), _mm256_extracti128_si256(x, 1));
#else
	uint16x8_t a = vcombine_u16(vmovn_u32((uint32x4_t)s.w[0]), vmovn_u32((uint32x4_t)s.w[1]));
	uint16x8_t b = vcombine_u16(vmovn_u32((uint32x4_t)s.w[2]), vmovn_u32((uint32x4_t)s.w[3]));
	return (bytes)vcombine_u8(vmovn_u16(a), vmovn_u16(b));
#endif
}

INLINE void store(uint8_t *p, bytes x) { memcpy(p, &x, 16); }

/* transpose replaces sixteen rows of sixteen bytes by their columns. */
INLINE void transpose(bytes r[16])
{
	for (int step = 0; step < 4; step++) {
		bytes x[16];
		for (int i = 0; i < 8; i++) {
			x[2 * i] = __builtin_shufflevector(r[i], r[i + 8], 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
			x[2 * i + 1] = __builtin_shufflevector(r[i], r[i + 8], 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31);
		}
		for (int i = 0; i < 16; i++)
			r[i] = x[i];
	}
}

/* following moves *p, line *i of the ring, to the next line. */
INLINE void following(const vapp_lines *in, const uint8_t **p, int64_t *i)
{
	*p += in->stride;
	if (++*i == in->ring)
		*p -= *i * in->stride, *i = 0;
}

void NAME(mix)(uint8_t *out, int64_t n, const vapp_lines *in, int64_t first, const int32_t *w, int64_t taps, int bits)
{
	const int32_t half = 1 << (bits - 1);
	const int64_t slot = first % in->ring;
	const uint8_t *begin = in->at + slot * in->stride;
	int64_t x = 0;
	for (; x + 16 * LINES <= n; x += 16 * LINES) {
		sums s[LINES];
		for (int j = 0; j < LINES; j++)
			s[j] = of(half);
		const uint8_t *p = begin + x;
		for (int64_t i = 0, at = slot; i < taps; i++, following(in, &p, &at)) {
			const words weight = set(w[i]);
			for (int j = 0; j < LINES; j++)
				s[j] = plus(s[j], p + 16 * j, weight);
		}
		for (int j = 0; j < LINES; j++)
			store(out + x + 16 * j, rounded(s[j], bits));
	}
	for (; x < n; x++) {
		int32_t s = half;
		const uint8_t *p = begin + x;
		for (int64_t i = 0, at = slot; i < taps; i++, following(in, &p, &at))
			s += *p * w[i];
		s >>= bits;
		out[x] = (uint8_t)(s < 0 ? 0 : s > 255 ? 255 : s);
	}
}

/* separate fills tile [bytes][16] with bytes [from, to) of sixteen rows. */
static void separate(const uint8_t *const rows[16], int64_t from, int64_t to, uint8_t *tile)
{
	for (; from + 16 <= to; from += 16, tile += 256) {
		bytes r[16];
		for (int i = 0; i < 16; i++)
			memcpy(&r[i], rows[i] + from, 16);
		transpose(r);
		for (int i = 0; i < 16; i++)
			store(tile + 16 * i, r[i]);
	}
	for (; from < to; from++, tile += 16)
		for (int i = 0; i < 16; i++)
			tile[i] = rows[i][from];
}

/* join stores n columns of sixteen rows, from byte x of the rows on. */
static void join(const uint8_t *columns, int64_t n, uint8_t *const rows[16], int64_t x)
{
	bytes r[16];
	for (int64_t j = 0; j < n && n < 16; j++)
		for (int i = 0; i < 16; i++)
			rows[i][x + j] = columns[16 * j + i];
	if (n < 16)
		return;
	for (int i = 0; i < 16; i++)
		memcpy(&r[i], columns + 16 * i, 16);
	transpose(r);
	for (int i = 0; i < 16; i++)
		store(rows[i] + x, r[i]);
}

void NAME(rows)(uint8_t *const out[16], const uint8_t *const in[16], int64_t n, const int32_t *first, const int32_t *end, const int32_t *w, int bits,
	uint8_t *tile, int64_t pixels)
{
	const sums half = of(1 << (bits - 1));
	uint8_t columns[16 * 16] __attribute__((aligned(64)));
	int64_t done = 0, held = 0; /* bytes of each row of the result: stored, and in columns */
	for (int64_t x = 0; x < n;) {
		const int64_t from = first[x];
		int64_t to = from, last = x;
		for (; last < n; last++) { /* the pixels that read only this tile */
			const int64_t until = first[last] + end[last] - (last ? end[last - 1] : 0);
			if (until - from > pixels)
				break;
			to = until > to ? until : to;
		}
		separate(in, 3 * from, 3 * to, tile);
		for (; x < last; x++) {
			const int32_t *weights = w + (x ? end[x - 1] : 0), *behind = w + end[x];
			const uint8_t *p = tile + 48 * (first[x] - from);
			sums s[3] = {half, half, half};
			for (; weights < behind; weights++, p += 48) {
				const words weight = set(*weights);
				for (int c = 0; c < 3; c++)
					s[c] = plus(s[c], p + 16 * c, weight);
			}
			for (int c = 0; c < 3; c++) {
				store(columns + 16 * held, rounded(s[c], bits));
				if (++held == 16) {
					join(columns, 16, out, done);
					done += 16, held = 0;
				}
			}
		}
	}
	join(columns, held, out, done);
}
