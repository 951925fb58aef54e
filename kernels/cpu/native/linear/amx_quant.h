/* amx_quant.h: Linear for quantized weights on AMX tiles, and on vectors for few rows.
 *
 * x is rounded to bf16, to nearest even. A product has one of two definitions, which all rows use:
 *
 *   inside    A weight is rounded to bf16 and multiplied; a tile sums over all k.
 *             Codes of five bits or more, formats with minima and 8-bit floats: half away from
 *             zero. Codes of four bits or less without minima: to a grid for each scale,
 *             fma(code, d, B) − B, with B = 1.5·2^(e + 16) and 2^e the power of two of the largest
 *             weight of any code. The grid's step is 2^(e − 7), so bf16 holds every result. With a
 *             minimum, B + m would round it too, and results leave the bounds of bf16 products.
 *             MXFP4: exact. 8-bit floats and I8 with one scale for each output, or none: the
 *             codes, exact; the sum is scaled. NVFP4: codes times the scales of their groups,
 *             exact; the sum is scaled.
 *   outside   Codes are multiplied, exact in bf16; a tile sums 32 k's from 0. Vectors do
 *             total = fma(sum, d, total) and, for formats with minima,
 *             total = fma(sum of x, m, total), where codes count from their middle.
 *
 * A tile adds, for 32 k's, a chain of multiply-adds of the even k's and one of the odd k's, both
 * from 0: even + odd is added to the sum. Denormals are zero. Vectors do the same, so a row has
 * the same bits on tiles and on vectors; only NaNs may differ in their payload. The bias is
 * added last. */
#ifndef VAPP_CPU_LINEAR_AMX_QUANT_H
#define VAPP_CPU_LINEAR_AMX_QUANT_H
#include <stdint.h>

#include "panel.h"

enum {
	QUANT_CHUNK = 16, /* row tiles of a chunk: x of a chunk and QUANT_SPAN k tiles is 1 MB, and stays in the second cache */
	QUANT_SPAN = 64,  /* k tiles of a chunk */
	QUANT_PANELS = 16, /* panels whose sums wait for the next k tiles, if there are more than QUANT_SPAN */
	QUANT_FEW = 4     /* the most rows that vectors multiply */
};

/* Unpacked k tiles of a panel: pairs of bf16 of the first 16 outputs, then of the others. d and m
 * are the scales and minima of outside. */
typedef struct {
	uint16_t pairs[KTILES][2][TILE_ROWS * TILE_K];
	float d[KTILES][PANEL], m[KTILES][PANEL];
} quant_ring;

/* What a part needs on top of its x of few rows. */
typedef struct {
	quant_ring ring;
	float sums[KTILES][TILE_ROWS * TILE_ROWS]; /* outside: a tile's sums of 32 k's */
	float totals[];                            /* [panels][row tiles][2][16][16] */
} quant_work;

/* The functions of a format and definition, without tiles. */
typedef struct {
	/* unpack writes n k tiles of a panel, from t on, to the slots from t % KTILES on. If near is
	 * set, it prefetches what it will read next. */
	void (*unpack)(const vapp_linear *a, int64_t panel, int64_t t, int64_t n, int near, quant_ring *to);
	/* few[rows] multiplies rows of x [k][rows], with their sums [k/32][rows], with a panel; few[1]
	 * takes two panels at once, or the same one twice. */
	void (*few[QUANT_FEW + 1])(const vapp_linear *a, const float *x, const float *sums, int64_t panel, int64_t second);
	int32_t most; /* rows that few takes */
} quant_kernel;

/* vapp_quant_kernel returns the functions of a format, or NULL if it has none in this definition. */
const quant_kernel *vapp_quant_kernel(int format, int outside);

/* vapp_quant_few computes a part for at most q->most rows. */
void vapp_quant_few(const quant_kernel *q, const vapp_linear *a, int part, int parts);

/* vapp_quant_prepare rounds x to [row tile]{[k tile][16][32] bf16; outside: sums [k tile][16]}.
 * Elements past the last k are zero. Rows past the last one are uninitialized; they affect no
 * other row. */
void vapp_quant_prepare(const vapp_linear *a, int outside, int part, int parts);

INLINE int64_t quant_tiles(const vapp_linear *a) { return ((int64_t)a->in + TILE_K - 1) / TILE_K; }

/* quant_x_bytes returns the bytes of a row tile of x. */
INLINE int64_t quant_x_bytes(const vapp_linear *a, int outside) { return quant_tiles(a) * (outside ? 1024 + 64 : 1024); }

/* quant_minimum reports whether a minimum is added to a weight. */
INLINE int quant_minimum(int32_t format) { return q4_kernel(format % VAPP_SCALES) == VAPP_Q4_1 || blocks_of(format).least; }

/* scaled_last reports whether the sums of an output are scaled instead of its weights. */
INLINE int scaled_last(int32_t format) {
	int scales = format / VAPP_SCALES;
	return in_nvfp4(format) || (group_k(format) == SCALE_K && (scales == VAPP_NO_SCALES || scales == VAPP_CHANNEL_SCALES));
}

/* vapp_linear_amx_quant returns the kernel of a quantized format, with tiles in memory for
 * vapp_linear_amx_quant_soft; NULL if the definition does not have the format. */
const vapp_linear_kernel *vapp_linear_amx_quant(int format, int outside);
const vapp_linear_kernel *vapp_linear_amx_quant_soft(int format, int outside);

#endif
