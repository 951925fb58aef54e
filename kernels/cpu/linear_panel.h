/* linear_panel.h: how packed weights lie in memory, for the kernels of Linear.
 *
 * A weight is cut into panels of 32 rows (outputs), the last one padded. A panel
 * is one run of bytes, its elements in the order of k (inputs); lane = row − 32·panel:
 *
 *   F32    [k][32] float
 *   F16    [k][32] half
 *   BF16   [k/2][32][2]: a pair of neighbours in k, an odd end padded with zero
 *   Q8_0   per 32 k: [32] half d, [32 k][32] int8
 *   Q4_0   per 32 k: [32] half d, [4][32] dword; nibble j of dword g is k 8·g+j
 *   Q4_1   per 32 k: [32] half d, [32] half m, dwords as Q4_0
 *
 * So nothing but the padding is added, and one vector holds one k of 16 rows. */
#ifndef VAPP_CPU_LINEAR_PANEL_H
#define VAPP_CPU_LINEAR_PANEL_H
#include "linear.h"
#include <stddef.h>
#include <string.h>

enum {
	PANEL = 32,  /* rows of a weight in a panel */
	KBLOCK = 128, /* k unpacked at once: a block of floats and its x stay in L1 */
	TILE_ROWS = 16, /* AMX: rows of x, and lanes, in a tile of sums */
	TILE_K = 32,    /* AMX: k's in a tile of operands */
	KTILES = 8      /* AMX: tiles of k unpacked at once */
};

#define INLINE static inline __attribute__((always_inline))

/* panel_k returns the bytes of n k's (whole blocks or pairs) of a panel. */
INLINE int64_t panel_k(int32_t format, int64_t n) {
	switch (format) {
	case VAPP_F32: return n * 128;
	case VAPP_F16: return n * 64;
	case VAPP_BF16: return (n + 1) / 2 * 128;
	case VAPP_Q8_0: return n / 32 * 1088;
	case VAPP_Q4_0: return n / 32 * 576;
	default: return n / 32 * 640; /* VAPP_Q4_1 */
	}
}

INLINE const uint8_t *panel_at(const vapp_linear *a, int64_t panel) {
	return (const uint8_t *)a->w + panel * panel_k(a->format, a->in);
}

INLINE int64_t panels_of(const vapp_linear *a) { return (a->out + PANEL - 1) / PANEL; }

/* A grid cuts a product into panels × chunks of row tiles; a part takes the units
 * [first, last) of it, panel by panel. Rows are cut only where there are too few
 * panels to keep the parts evenly busy. */
typedef struct {
	int64_t chunks, tiles, first, last;
} linear_grid;

INLINE linear_grid grid_of(const vapp_linear *a, int tile, int part, int parts) {
	linear_grid g;
	int64_t panels = panels_of(a);
	g.tiles = ((int64_t)a->rows + tile - 1) / tile;
	g.chunks = 1;
	if (panels < 4 * (int64_t)parts && panels > 0) {
		g.chunks = (4 * (int64_t)parts + panels - 1) / panels;
		if (g.chunks > g.tiles) g.chunks = g.tiles;
	}
	int64_t units = panels * g.chunks;
	g.first = units * part / parts;
	g.last = units * (part + 1) / parts;
	return g;
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

/* vapp_linear_row unpacks one row; it serves all variants. */
void vapp_linear_row(const void *w, int32_t format, int32_t in, int32_t out, int32_t r, float *dst);

const vapp_linear_kernel *vapp_linear_generic(int format);
const vapp_linear_kernel *vapp_linear_avx2(int format);
const vapp_linear_kernel *vapp_linear_avx512(int format);
const vapp_linear_kernel *vapp_linear_amx(int format);
const vapp_linear_kernel *vapp_linear_amx_soft(int format);

#endif
