/* panel.h: the memory layout of packed weights, for the kernels of Linear.
 *
 * A weight is cut into panels of 32 rows (outputs); the last one is padded. A panel is
 * contiguous, with its elements in the order of k (inputs); lane = row − 32·panel:
 *
 *   F32    [k][32] float
 *   F16    [k][32] half
 *   BF16   [k/2][32][2]: pairs of neighbours in k, an odd end padded with zero
 *   Q8_0   per 32 k: [32] half d, [32 k][32] int8
 *   Q4_0   per 32 k: [32] half d, [4][32] dword; the low half of dword g has k 8·g+{0,2,4,6}
 *          as its nibbles from the lowest on, the high half 8·g+{1,3,5,7}
 *   Q4_1   per 32 k: [32] half d, [32] half m, dwords as Q4_0
 *   I4     per 32 k: [32] dword: a scale in the upper 24 bits of a float, a zero point in the
 *          lower 8; dwords as Q4_0. The kernels of Q4_1 read it: m is −d·zero, exact
 *
 *   other formats of GGUF: blocks.h, stored.h
 *
 *   F8     [k/2][32][2] bytes, an odd end padded with zero
 *   MXFP4  per 32 k: dwords as Q4_0
 *   NVFP4  per 32 k, an odd end of 16 padded with zero: [2][32] bytes E4M3, of 16 k each; dwords
 *          as Q4_0
 *   I8     [k][32] int8
 *
 * The scales of 8-bit floats, I8 and NVFP4 follow the elements of a panel, as floats: [32] for
 * VAPP_CHANNEL_SCALES, [k/128][32] for VAPP_BLOCK_SCALES, [k/128] for VAPP_PANEL_SCALES,
 * [k/32][32] for VAPP_GROUP_SCALES. The exponents of MXFP4 follow as [k/32][32] bytes. All are
 * padded to 64 bytes. NVFP4 has VAPP_CHANNEL_SCALES or none; they scale an output's whole sum.
 *
 * So a panel needs little more memory than its elements, and one vector holds one k of 16 rows. */
#ifndef VAPP_CPU_LINEAR_PANEL_H
#define VAPP_CPU_LINEAR_PANEL_H
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "../shared/inline.h"
#include "../shared/linear.h"
#include "blocks.h"

enum {
	PANEL = 32,  /* rows of a weight in a panel */
	KBLOCK = 128, /* k unpacked at once: a block of floats and its x stay in L1 */
	TILE_ROWS = 16, /* AMX: rows of x, and lanes, in a tile of sums */
	TILE_K = 32,    /* AMX: k's in a tile of operands */
	KTILES = 8,     /* AMX: tiles of k unpacked at once */
	DECODE_ROWS = 4,        /* AVX512-BF16: at most so many rows read packed weights directly */
	XGROUP = 16,    /* AVX512-BF16: the smallest number of k's in a group */
	PAIR_RUN = 512, /* AVX512-BF16: k's unpacked at once, with tables, scales and minima */
	PAIR_WORK_BYTES = 384 + PAIR_RUN * PANEL * 2 + 2 * PAIR_RUN / XGROUP * PANEL * 4,
	SCALE_K = 128, /* k's that share a scale of an 8-bit float, or of I8 except with VAPP_GROUP_SCALES */
	MX_K = 32,     /* k's that share an exponent of MXFP4, or a scale of Q8_0 and Q4_0 */
	NV_K = 16,     /* k's that share a scale of NVFP4 */
	NV_BYTES = 576 /* of 32 k's of NVFP4 */
};

/* BF16 weights on AMX: amx_bf16.h. */
enum {
	BF16_BLOCK = 8,         /* tiles of k that stay in the first cache */
	BF16_PAIRS = 8,         /* at most so many pairs of row tiles in a chunk */
	BF16_STEP_TILES = 640,  /* at most so many tiles of k, times pairs, in a step: 1.25 MiB of x in the second cache */
	BF16_GROUP = 32,        /* panels whose sums outlive a step */
	BF16_GRAIN = 8,         /* at most so many panels are taken as one, if k has several steps */
	BF16_STREAM_ROWS = 64   /* results of more rows are stored past the caches */
};

/* stored_block returns the bytes of a block of a format of stored.h; 0 for the others. */
INLINE int64_t stored_block(int32_t format) {
	switch (format) {
	case VAPP_IQ3_XXS: return 98;
	case VAPP_IQ3_S: return 110;
	case VAPP_IQ2_XXS: return 66;
	case VAPP_IQ2_XS: return 74;
	case VAPP_IQ2_S: return 82;
	case VAPP_IQ1_S: return 50;
	case VAPP_IQ1_M: return 56;
	case VAPP_TQ1_0: return 54;
	case VAPP_TQ2_0: return 66;
	default: return 0;
	}
}

/* panel_k returns the bytes of n k's (whole blocks or pairs) of a panel. */
INLINE int64_t panel_k(int32_t format, int64_t n) {
	switch (format % VAPP_SCALES) {
	case VAPP_F32: return n * 128;
	case VAPP_F16: return n * 64;
	case VAPP_BF16: return (n + 1) / 2 * 128;
	case VAPP_Q8_0: return n / 32 * 1088;
	case VAPP_I8: return n * 32;
	case VAPP_F8_E4M3:
	case VAPP_F8_E5M2: return (n + 1) / 2 * 64;
	case VAPP_Q4_0: return n / 32 * 576;
	case VAPP_MXFP4: return n / 32 * 512;
	case VAPP_NVFP4: return (n + 31) / 32 * NV_BYTES;
	case VAPP_Q4_1:
	case VAPP_I4: return n / 32 * 640;
	}
	if (stored_block(format)) return n / 256 * stored_block(format) * PANEL;
	return blocks_bytes(blocks_of(format), n);
}

/* group_k returns how many k's are summed before the sum is scaled; 0: the weights are scaled
 * when they are unpacked. */
INLINE int64_t group_k(int32_t format) {
	switch (format % VAPP_SCALES) {
	case VAPP_I8: return format / VAPP_SCALES == VAPP_GROUP_SCALES ? MX_K : SCALE_K;
	case VAPP_F8_E4M3:
	case VAPP_F8_E5M2: return SCALE_K;
	case VAPP_Q8_0:
	case VAPP_Q4_0:
	case VAPP_MXFP4: return MX_K;
	case VAPP_NVFP4: return NV_K;
	default: return 0;
	}
}

/* in_nvfp4 reports whether a format is NVFP4, with scales of outputs or without. */
INLINE int in_nvfp4(int32_t format) { return format % VAPP_SCALES == VAPP_NVFP4; }

/* nvfp4_scales returns the scales of the group that begins k k's after those at p, which begin 32;
 * nvfp4_codes returns its dwords. */
INLINE const uint8_t *nvfp4_scales(const uint8_t *p, int64_t k) { return p + k / 32 * NV_BYTES + k % 32 / NV_K * PANEL; }
INLINE const uint8_t *nvfp4_codes(const uint8_t *p, int64_t k) { return p + k / 32 * NV_BYTES + 2 * PANEL + k % 32 / 8 * 4 * PANEL; }

/* scales_first reports whether a group's scales precede its elements: one stream of memory
 * reads faster than two. */
INLINE int scales_first(int32_t format) { return format == VAPP_Q8_0 || format == VAPP_Q4_0 || in_nvfp4(format); }

/* group_step returns the bytes from one group's scales to the next group's; of NVFP4, to those 32
 * k's on. */
INLINE int64_t group_step(int32_t format) {
	if (format == VAPP_MXFP4) return PANEL;
	if (scales_first(format)) return panel_k(format, MX_K);
	switch (format / VAPP_SCALES) {
	case VAPP_GROUP_SCALES:
	case VAPP_BLOCK_SCALES: return PANEL * 4;
	case VAPP_PANEL_SCALES: return 4;
	default: return 0;
	}
}

/* panel_bytes returns the bytes of a panel of `in` k's and its scales. */
INLINE int64_t panel_bytes(int32_t format, int64_t in) {
	int64_t group = group_k(format), scales = 0;
	if (format / VAPP_SCALES == VAPP_CHANNEL_SCALES)
		scales = PANEL * 4;
	else if (group && !scales_first(format))
		scales = (in + group - 1) / group * group_step(format);
	return panel_k(format, in) + (scales + 63) / 64 * 64;
}

INLINE const uint8_t *panel_at(const vapp_linear *a, int64_t panel) {
	return (const uint8_t *)a->w + panel * panel_bytes(a->format, a->in);
}

/* scales_at returns the scales of the group that begins at k0. */
INLINE const uint8_t *scales_at(const vapp_linear *a, int64_t panel, int64_t k0) {
	int64_t group = group_k(a->format);
	if (in_nvfp4(a->format)) return nvfp4_scales(panel_at(a, panel), k0);
	if (scales_first(a->format)) return panel_at(a, panel) + panel_k(a->format, k0);
	return group ? panel_at(a, panel) + panel_k(a->format, a->in) + k0 / group * group_step(a->format) : NULL;
}

/* outputs_at returns the scales of a panel's outputs: output_scale. */
INLINE const uint8_t *outputs_at(const vapp_linear *a, int64_t panel) { return panel_at(a, panel) + panel_k(a->format, a->in); }

INLINE int64_t panels_of(const vapp_linear *a) { return (a->out + PANEL - 1) / PANEL; }

/* A grid cuts a product into units: panels × chunks of row tiles. A part computes the units of
 * [next, last), panel by panel. Rows are cut only if there are too few panels to keep the parts
 * busy. */
typedef struct {
	int64_t chunks, tiles, units, next, last;
	int parts;
} linear_grid;

INLINE linear_grid grid_of(const vapp_linear *a, int tile, int part, int parts) {
	linear_grid g = {.chunks = 1, .tiles = ((int64_t)a->rows + tile - 1) / tile, .parts = parts};
	int64_t panels = panels_of(a);
	if (panels < 4 * (int64_t)parts && panels > 0) {
		g.chunks = (4 * (int64_t)parts + panels - 1) / panels;
		if (g.chunks > g.tiles) g.chunks = g.tiles;
	}
	g.units = panels * g.chunks;
	if (a->taken) return g;
	g.next = g.units * part / parts;
	g.last = g.units * (part + 1) / parts;
	return g;
}

/* linear_take gives a part its next units: half of its equal share of those that are left of
 * its node's, and when these are taken, of the other nodes'. So streams of memory are long and
 * near, and the parts end together even if one of them is slow. */
INLINE int linear_take(const vapp_linear *a, linear_grid *g) {
	int nodes = a->nodes.nodes > 1 ? a->nodes.nodes : 1;
	for (int i = 0; a->taken && i < nodes; i++) {
		int node = nodes > 1 ? (a->nodes.node + i) % nodes : 0;
		int64_t *taken = a->taken + VAPP_TAKEN * node, panels = g->units / g->chunks;
		int64_t first = vapp_node_panel(&a->nodes, panels, node) * g->chunks;
		int64_t units = vapp_node_panel(&a->nodes, panels, node + 1) * g->chunks - first;
		int64_t from = __atomic_load_n(taken, __ATOMIC_RELAXED), n, parts = g->parts;
		if (nodes > 1 && i == 0) parts = (parts * (a->nodes.threads[node + 1] - a->nodes.threads[node]) - 1) / a->nodes.threads[nodes] + 1;
		while (from < units) {
			n = (units - from + 2 * parts - 1) / (2 * parts);
			if (n % 2 && from + n < units) n++; /* pairs of panels */
			if (!__atomic_compare_exchange_n(taken, &from, from + n, 0, __ATOMIC_RELAXED, __ATOMIC_RELAXED)) continue;
			g->next = first + from;
			g->last = first + from + n;
			return 1;
		}
	}
	return 0;
}

/* linear_unit returns a part's next unit, or -1. */
INLINE int64_t linear_unit(const vapp_linear *a, linear_grid *g) {
	return g->next < g->last || linear_take(a, g) ? g->next++ : -1;
}

/* half_float converts IEEE binary16 exactly. */
INLINE float half_float(uint16_t h) {
	uint32_t sign = (uint32_t)(h & 0x8000) << 16, rest = h & 0x7fff, bits;
	float f;
	if (rest >= 0x7c00) {
		bits = sign | 0x7f800000 | (rest & 0x3ff) << 13;
	} else if (rest >= 0x0400) {
		bits = sign | ((rest << 13) + 0x38000000);
	} else { /* subnormal: rest · 2⁻²⁴ */
		f = (float)rest * 0x1p-24f;
		memcpy(&bits, &f, 4);
		bits |= sign;
	}
	memcpy(&f, &bits, 4);
	return f;
}

INLINE float bf16_float(uint16_t h) {
	uint32_t bits = (uint32_t)h << 16;
	float f;
	memcpy(&f, &bits, 4);
	return f;
}

INLINE uint16_t load16(const uint8_t *p) {
	uint16_t v;
	memcpy(&v, p, 2);
	return v;
}

/* with_zeros reports whether the heads of a format of Q4_1's layout are a scale and a zero point
 * in a dword. */
INLINE int with_zeros(int32_t format) { return format == VAPP_I4; }

/* q4_kernel returns the format whose kernels multiply a format. */
INLINE int32_t q4_kernel(int32_t format) { return with_zeros(format) ? VAPP_Q4_1 : format; }

enum { ZERO_BITS = 0xff /* of a head with a zero point */ };

/* A scale and what is added to its product with a code. */
typedef struct {
	float d, m;
} q4_head;

/* q4_head_at returns a lane's head of 32 k's in Q4_1's layout, which begin at p. */
INLINE q4_head q4_head_at(int32_t format, const uint8_t *p, int lane) {
	uint32_t word;
	float d;
	if (!with_zeros(format)) return (q4_head){half_float(load16(p + lane * 2)), half_float(load16(p + 64 + lane * 2))};
	memcpy(&word, p + lane * 4, 4);
	const float zero = (float)(word & ZERO_BITS);
	word &= ~(uint32_t)ZERO_BITS;
	memcpy(&d, &word, 4);
	return (q4_head){d, -(d * zero)};
}

/* nibble_at returns the bit where the nibble of the j-th of a dword's eight k's begins. */
INLINE int nibble_at(int j) { return j % 2 * 16 + j / 2 * 4; }

INLINE float load_float(const uint8_t *p) {
	float f;
	memcpy(&f, p, 4);
	return f;
}

/* float8_half returns the half whose bits hold an 8-bit float; for E4M3 its value is 2⁻⁸ of the
 * number. NaNs of E4M3 are refused when weights are packed. */
INLINE uint16_t float8_half(int32_t format, uint8_t b) {
	if (format % VAPP_SCALES == VAPP_F8_E5M2) return (uint16_t)(b << 8);
	return (uint16_t)((b & 0x80) << 8 | (b & 0x7f) << 7);
}

INLINE float float8_unit(int32_t format) { return format % VAPP_SCALES == VAPP_F8_E4M3 ? 0x1p8f : 1; }

/* exponent_float returns 2^(e−127), e below 255. */
INLINE float exponent_float(uint8_t e) {
	uint32_t bits = e ? (uint32_t)e << 23 : 0x400000;
	float f;
	memcpy(&f, &bits, 4);
	return f;
}

/* group_scale returns the factor for the sum of a group's raw products. */
INLINE float group_scale(int32_t format, const uint8_t *scales, int lane) {
	if (format == VAPP_MXFP4) return exponent_float(scales[lane]);
	if (in_nvfp4(format)) return half_float(float8_half(VAPP_F8_E4M3, scales[lane]));
	if (scales_first(format)) return half_float(load16(scales + lane * 2));
	switch (format / VAPP_SCALES) {
	case VAPP_NO_SCALES: return float8_unit(format);
	case VAPP_PANEL_SCALES: return load_float(scales) * float8_unit(format);
	default: return load_float(scales + lane * 4) * float8_unit(format);
	}
}

/* output_scale returns the factor for the sum of an output of NVFP4, whose groups have the scales of
 * group_scale, 2⁻⁸ of what they mean. */
INLINE float output_scale(int32_t format, const uint8_t *outputs, int lane) {
	return format / VAPP_SCALES == VAPP_CHANNEL_SCALES ? load_float(outputs + lane * 4) * 0x1p8f : 0x1p8f;
}

/* vapp_linear_row unpacks one row; all variants use it. */
void vapp_linear_row(const void *w, int32_t format, int32_t in, int32_t out, int32_t r, float *dst);

const vapp_linear_kernel *vapp_linear_generic(int format);
const vapp_linear_kernel *vapp_linear_avx2(int format);
const vapp_linear_kernel *vapp_linear_avx512(int format);
const vapp_linear_kernel *vapp_linear_bf16(int format);
const vapp_linear_kernel *vapp_linear_neon(int format);

/* BFMMLA takes rows in pairs, BFMMLA_TILE at once; a pair of x has bfmmla_pair_bytes. */
enum { BFMMLA_TILE = 8 };
INLINE int64_t bfmmla_pair_bytes(int64_t in) { return (in + 3) / 4 * 16; }
const vapp_linear_kernel *vapp_linear_bfmmla(int format);
const vapp_linear_kernel *vapp_linear_amx(int format);
const vapp_linear_kernel *vapp_linear_amx_soft(int format);

#endif
