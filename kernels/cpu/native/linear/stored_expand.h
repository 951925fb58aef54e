/* stored_expand.h: unpacking of stored.h. The including file defines VL, the dwords of a vector, each
 * of one output: 16 is AVX-512, 8 AVX2, 4 portable C. */
#ifndef VAPP_CPU_LINEAR_STORED_EXPAND_H
#define VAPP_CPU_LINEAR_STORED_EXPAND_H
#if VL > 4
#include <immintrin.h>
#endif
#include <stdint.h>

#include "../shared/grids.h"
#include "stored.h"

#if VL == 16
#define FN __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,f16c")))
#elif VL == 8
#define FN __attribute__((target("avx2,fma,f16c")))
#else
#define FN /* portable C */
#endif
#define FN_INLINE static inline __attribute__((always_inline)) FN

typedef uint32_t V __attribute__((vector_size(4 * VL)));

/* v_bytes returns VL bytes as dwords, v_put_bytes stores dwords as bytes, and v_grid returns entries
 * of a grid of 256, 512, 1024 or 2048; their upper halves are undefined. */
#if VL == 16
FN_INLINE V v_bytes(const uint8_t *p) { return (V)_mm512_cvtepu8_epi32(_mm_loadu_si128((const void *)p)); }
FN_INLINE void v_put_bytes(uint8_t *p, V v) { _mm_storeu_si128((void *)p, _mm512_cvtepi32_epi8((__m512i)v)); }

/* look_up returns entries of 64 words, by the low six bits of an index. */
FN_INLINE __m512i look_up(const uint16_t *grid, __m512i at) {
	return _mm512_permutex2var_epi16(_mm512_loadu_si512(grid), at, _mm512_loadu_si512(grid + 32));
}

/* Up to 512 entries are looked up in registers, 64 at once, and selected by the upper bits of the
 * index. */
FN_INLINE V v_grid(const uint16_t *grid, const int entries, V at) {
	if (entries > 512) return (V)_mm512_i32gather_epi32((__m512i)at, grid, 2);
	const __m512i i = (__m512i)at;
	const __mmask16 bit6 = _mm512_test_epi32_mask(i, _mm512_set1_epi32(64)), bit7 = _mm512_test_epi32_mask(i, _mm512_set1_epi32(128));
	__m512i half[2];
#pragma GCC unroll 2
	for (int h = 0; h < entries / 256; h++, grid += 256) {
		__m512i low = _mm512_mask_blend_epi32(bit6, look_up(grid, i), look_up(grid + 64, i));
		__m512i high = _mm512_mask_blend_epi32(bit6, look_up(grid + 128, i), look_up(grid + 192, i));
		half[h] = _mm512_mask_blend_epi32(bit7, low, high);
	}
	if (entries == 256) return (V)half[0];
	return (V)_mm512_mask_blend_epi32(_mm512_test_epi32_mask(i, _mm512_set1_epi32(256)), half[0], half[1]);
}
#elif VL == 8
FN_INLINE V v_bytes(const uint8_t *p) { return (V)_mm256_cvtepu8_epi32(_mm_loadl_epi64((const void *)p)); }
FN_INLINE void v_put_bytes(uint8_t *p, V v) {
	__m128i words = _mm_packus_epi32(_mm256_castsi256_si128((__m256i)v), _mm256_extracti128_si256((__m256i)v, 1));
	_mm_storel_epi64((void *)p, _mm_packus_epi16(words, words));
}
FN_INLINE V v_grid(const uint16_t *grid, const int entries, V at) {
	(void)entries;
	return (V)_mm256_i32gather_epi32((const void *)grid, (__m256i)at, 2);
}
#else
FN_INLINE V v_bytes(const uint8_t *p) { return (V){p[0], p[1], p[2], p[3]}; }
FN_INLINE void v_put_bytes(uint8_t *p, V v) {
	for (int i = 0; i < VL; i++) p[i] = (uint8_t)v[i];
}
FN_INLINE V v_grid(const uint16_t *grid, const int entries, V at) {
	(void)entries;
	return (V){grid[at[0]], grid[at[1]], grid[at[2]], grid[at[3]]};
}
#endif

/* Some outputs of a panel: their bytes of a block, and their place in 256 expanded k's. */
typedef struct {
	const uint8_t *from;
	uint8_t *to;
} lanes;

/* byte_of returns byte i of the blocks. */
FN_INLINE V byte_of(lanes p, int64_t i) { return v_bytes(p.from + i * PANEL); }
FN_INLINE V word_of(lanes p, int64_t i) { return byte_of(p, i) | byte_of(p, i + 1) << 8; }

enum { EXPANDED_EACH = 2 * PANEL + 4 * PANEL * 4, EXPANDED_SPAN = 2 * PANEL + 4 * EXPANDED_EACH };

/* group_at returns the offset of 32 k's, their scales first. */
INLINE int64_t group_at(int64_t g) { return g / 4 * EXPANDED_SPAN + 2 * PANEL + g % 4 * EXPANDED_EACH; }

/* put stores the codes of eight k's, the i-th of 32; p.to has the offset of the first lane. */
FN_INLINE void put(lanes p, int64_t i, int64_t lane, V codes) {
	__builtin_memcpy(p.to + group_at(i / 4) + 2 * PANEL + i % 4 * PANEL * 4 + lane * 4, &codes, sizeof codes);
}

/* put_scales stores the scales of both halves of group g. */
FN_INLINE void put_scales(lanes p, int64_t g, int64_t lane, V first, V second) {
	v_put_bytes(p.to + group_at(g) + lane, first);
	v_put_bytes(p.to + group_at(g) + PANEL + lane, second);
}

/* put_halves stores d of all outputs, whose bytes are 32 apart. */
static void put_halves(const uint8_t *low, uint8_t *to) {
	for (int lane = 0; lane < PANEL; lane++)
		for (int i = 0; i < 2; i++) to[2 * lane + i] = to[EXPANDED_SPAN + 2 * lane + i] = low[i * PANEL + lane];
}

/* spread_pairs returns the eight low pairs of bits as nibbles. */
FN_INLINE V spread_pairs(V x) {
	x = (x & 0xff) | (x << 8 & 0xff0000);
	x = (x | x << 4) & 0x0f0f0f0f;
	return (x | x << 2) & 0x33333333;
}

/* spread_signs returns the eight low bits as the upper bits of nibbles. */
FN_INLINE V spread_signs(V x) {
	x = (x << 3 | x << 15) & 0x00780078;
	x = (x | x << 6) & 0x18181818;
	return (x | x << 3) & 0x88888888;
}

/* signs_of_7 returns eight signs of which seven are stored: an even number is negative. */
FN_INLINE V signs_of_7(V x) {
	x &= 127;
	V odd = x ^ x >> 4;
	odd ^= odd >> 2;
	odd ^= odd >> 1;
	return x | (odd & 1) << 7;
}

/* With sub set, scales of 16 k's, a nibble each at byte `at`; else of 32. */
FN_INLINE void nibble_scales(lanes p, int64_t lane, int64_t at, const int sub) {
	for (int64_t g = 0; g < 8; g += 2 - sub) {
		V both = byte_of(p, at + (sub ? g : g / 2)), low = (both & 15) * 2 + 1, high = (both >> 4) * 2 + 1;
		put_scales(p, g, lane, low, sub ? high : low);
		if (!sub) put_scales(p, g + 1, lane, high, high);
	}
}

FN_INLINE void expand_iq2_xxs(lanes p, int64_t lane) {
	for (int64_t g = 0; g < 8; g++) {
		V more = word_of(p, 6 + 8 * g) | word_of(p, 8 + 8 * g) << 16, scale = (more >> 28) * 2 + 1;
		put_scales(p, g, lane, scale, scale);
		for (int64_t i = 0; i < 4; i++, more >>= 7)
			put(p, 4 * g + i, lane, spread_pairs(v_grid(vapp_grid_iq2_xxs, 256, byte_of(p, 2 + 8 * g + i))) | spread_signs(signs_of_7(more)));
	}
}

FN_INLINE void expand_iq2_xs(lanes p, int64_t lane) {
	nibble_scales(p, lane, 66, 1);
	for (int64_t i = 0; i < 32; i++) {
		V q = word_of(p, 2 + 2 * i);
		put(p, i, lane, spread_pairs(v_grid(vapp_grid_iq2_xs, 512, q & 511)) | spread_signs(signs_of_7(q >> 9)));
	}
}

FN_INLINE void expand_iq2_s(lanes p, int64_t lane) {
	nibble_scales(p, lane, 74, 1);
	for (int64_t g = 0; g < 8; g++) {
		V high = byte_of(p, 66 + g) << 8;
		for (int64_t i = 4 * g; i < 4 * g + 4; i++, high >>= 2)
			put(p, i, lane, spread_pairs(v_grid(vapp_grid_iq2_s, 1024, byte_of(p, 2 + i) | (high & 0x300))) | spread_signs(byte_of(p, 34 + i)));
	}
}

FN_INLINE void expand_iq3_xxs(lanes p, int64_t lane) {
	for (int64_t g = 0; g < 8; g++) {
		V more = word_of(p, 66 + 4 * g) | word_of(p, 68 + 4 * g) << 16, scale = (more >> 28) * 2 + 1;
		put_scales(p, g, lane, scale, scale);
		for (int64_t i = 4 * g; i < 4 * g + 4; i++, more >>= 7) {
			V first = v_grid(vapp_grid_iq3_xxs, 256, byte_of(p, 2 + 2 * i)) & 0xffff, second = v_grid(vapp_grid_iq3_xxs, 256, byte_of(p, 3 + 2 * i));
			put(p, i, lane, first | second << 16 | spread_signs(signs_of_7(more)));
		}
	}
}

FN_INLINE void expand_iq3_s(lanes p, int64_t lane) {
	nibble_scales(p, lane, 106, 0);
	for (int64_t g = 0; g < 8; g++) {
		V high = byte_of(p, 66 + g) << 8;
		for (int64_t i = 4 * g; i < 4 * g + 4; i++, high >>= 2) {
			V first = v_grid(vapp_grid_iq3_s, 512, byte_of(p, 2 + 2 * i) | (high & 256)) & 0xffff;
			V second = v_grid(vapp_grid_iq3_s, 512, byte_of(p, 3 + 2 * i) | (high >> 1 & 256));
			put(p, i, lane, first | second << 16 | spread_signs(byte_of(p, 74 + i)));
		}
	}
}

/* iq1_codes returns eight codes; bit 0 of minus is set for −1/8. */
FN_INLINE V iq1_codes(V entry, V minus) { return spread_pairs(v_grid(vapp_grid_iq1_s, 2048, entry)) | ((0 - (minus & 1)) & 0x88888888); }

FN_INLINE void expand_iq1_s(lanes p, int64_t lane) {
	for (int64_t g = 0; g < 8; g++) {
		V high = word_of(p, 34 + 2 * g), minus = high >> 15, scale = (high >> 12 & 7) * 2 + 1;
		put_scales(p, g, lane, scale, scale);
		for (int64_t i = 4 * g; i < 4 * g + 4; i++, high >>= 3) put(p, i, lane, iq1_codes(byte_of(p, 2 + i) | (high & 7) << 8, minus));
	}
}

FN_INLINE void expand_iq1_m(lanes p, int64_t lane) {
	for (int64_t g = 0; g < 8; g++) {
		V scales = word_of(p, 48 + g / 2 * 2) >> g % 2 * 6, high = word_of(p, 32 + 2 * g);
		put_scales(p, g, lane, (scales & 7) * 2 + 1, (scales >> 3 & 7) * 2 + 1);
		for (int64_t i = 4 * g; i < 4 * g + 4; i++, high >>= 4) put(p, i, lane, iq1_codes(byte_of(p, i) | (high & 7) << 8, high >> 3));
	}
}

/* digits unpacks n digits of eight bytes: codes of k's that are `step` eights apart. Four bytes
 * have two digits of eight k's each. */
FN_INLINE void digits(lanes p, int64_t lane, int64_t byte, int64_t i, int64_t step, const int n) {
	V q[4];
	for (int j = 0; j < 4; j++) q[j] = byte_of(p, byte + j) | byte_of(p, byte + 4 + j) << 16;
	for (int d = 0; d < n; d++, i += step) {
		V codes = q[0] & 0;
		for (int j = 0; j < 4; j++) {
			q[j] *= 3;
			codes |= (q[j] >> 8 & 0x00ff00ff) << 4 * j;
			q[j] &= 0x00ff00ff;
		}
		put(p, i, lane, codes);
	}
}

FN_INLINE void expand_tq1_0(lanes p, int64_t lane) {
	for (int64_t i = 0; i < 4; i++) digits(p, lane, 8 * i, i, 4, 5);
	for (int64_t i = 0; i < 2; i++) digits(p, lane, 32 + 8 * i, 20 + i, 2, 5);
	V codes[2] = {byte_of(p, 0) & 0, byte_of(p, 0) & 0};
	for (int j = 0; j < 4; j++) {
		V q = byte_of(p, 48 + j);
		for (int d = 0; d < 4; d++) {
			q *= 3;
			codes[d / 2] |= q >> 8 << (4 * j + d % 2 * 16);
			q &= 255;
		}
	}
	put(p, 30, lane, codes[0]);
	put(p, 31, lane, codes[1]);
}

FN_INLINE void expand_tq2_0(lanes p, int64_t lane) {
	for (int64_t i = 0; i < 8; i++) {
		V even = word_of(p, 8 * i) & 0, odd = even;
		for (int j = 0; j < 4; j++) {
			even |= byte_of(p, 8 * i + 2 * j) << 8 * j;
			odd |= byte_of(p, 8 * i + 2 * j + 1) << 8 * j;
		}
		for (int64_t d = 0; d < 4; d++, even >>= 2, odd >>= 2)
			put(p, i / 4 * 16 + 4 * d + i % 4, lane, (even & 0x03030303) | (odd & 0x03030303) << 4);
	}
}

/* same_scales stores a scale of 1. */
static void same_scales(uint8_t *to) {
	for (int64_t g = 0; g < 8; g++) __builtin_memset(to + group_at(g), 1, 2 * PANEL);
}

/* half_at returns the offset of d in a block; IQ1_M, which cuts it to pieces, has none. */
INLINE int64_t half_at(int32_t format) { return format == VAPP_TQ1_0 ? 52 : format == VAPP_TQ2_0 ? 64 : 0; }

static void put_pieces(const uint8_t *words, uint8_t *to) {
	uint8_t halves[2 * PANEL];
	for (int lane = 0; lane < PANEL; lane++)
		for (int i = 0; i < 2; i++)
			halves[i * PANEL + lane] = (uint8_t)(words[(4 * i + 1) * PANEL + lane] >> 4 | (words[(4 * i + 3) * PANEL + lane] & 0xf0));
	put_halves(halves, to);
}

#define EXPAND(format, name) \
	case format: \
		for (int64_t lane = 0; lane < PANEL; lane += VL) expand_##name((lanes){panel + lane, to}, lane); \
		break;

FN static void expand(int32_t format, const uint8_t *panel, int64_t n, uint8_t *to) {
	const int64_t size = stored_block(format) * PANEL;
	for (; n > 0; n--, panel += size, to += 2 * EXPANDED_SPAN) {
		if (format == VAPP_IQ1_M) put_pieces(panel + 48 * PANEL, to);
		else put_halves(panel + half_at(format) * PANEL, to);
		if (format == VAPP_TQ1_0 || format == VAPP_TQ2_0) same_scales(to);
		switch (format) {
			EXPAND(VAPP_IQ2_XXS, iq2_xxs)
			EXPAND(VAPP_IQ2_XS, iq2_xs)
			EXPAND(VAPP_IQ2_S, iq2_s)
			EXPAND(VAPP_IQ3_XXS, iq3_xxs)
			EXPAND(VAPP_IQ3_S, iq3_s)
			EXPAND(VAPP_IQ1_S, iq1_s)
			EXPAND(VAPP_IQ1_M, iq1_m)
			EXPAND(VAPP_TQ1_0, tq1_0)
			EXPAND(VAPP_TQ2_0, tq2_0)
		}
	}
}

#endif
