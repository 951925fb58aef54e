/* blocks.h: the layout in a panel (panel.h) of GGUF's block formats except Q8_0, Q4_0 and Q4_1.
 * A code of low + high bits is stored as two fields. It means scale·(code − zero) [− least], or
 * scale·table[code]:
 *
 *   Q5_0, Q5_1, IQ4_NL   per 32 k: [32] half d; for Q5_1 [32] half m, added; fields
 *   Q2_K … Q6_K, IQ4_XS  per 128 k: [32] half d; with minima [32] half dmin;
 *                        then per 32 k: [subs][32] int8 scales; [subs][32] int8 minima; fields
 *
 * VAPP_EXPANDED is such a layout in memory of a thread: stored.h. Its upper bits select a table.
 *
 * Fields: the low bits of 32 k's in [low][32] dwords, then the high bits in [high][32]. A dword
 * holds 32/low (or 32/high) k's in order, the first in its lowest bits. A scale is d times the
 * sub-block's scale; this product is exact, and so is its product with a code. */
#ifndef VAPP_CPU_LINEAR_BLOCKS_H
#define VAPP_CPU_LINEAR_BLOCKS_H
#include <stdint.h>

#include "../shared/inline.h"
#include "../shared/linear.h"

typedef struct {
	int low, high; /* bits of a code */
	int subs;      /* scales for 32 k's; 0: d is the scale */
	int least;     /* has minima */
	int zero;
	int table;     /* codes are indices into a table */
} blocks;

/* The tables: that of IQ4, of whole numbers that fit a byte; those of VAPP_EXPANDED, of eighths
 * whose eightfold fits a byte, selected at run time. */
enum { TABLE_IQ4 = 1, TABLE_EIGHTHS };
enum { EXPANDED_IQ2 = 8, EXPANDED_IQ3_XXS, EXPANDED_IQ3_S, EXPANDED_IQ1, EXPANDED_TQ }; /* times VAPP_SCALES, beyond its values */
extern const float vapp_expanded_tables[8][16];

/* expanded_table returns the table of a format VAPP_EXPANDED. */
INLINE const float *expanded_table(int32_t format) { return vapp_expanded_tables[format / VAPP_SCALES % 8]; }

INLINE blocks blocks_of(int32_t format) {
	switch (format % VAPP_SCALES) {
	case VAPP_Q5_0: return (blocks){4, 1, 0, 0, 16, 0};
	case VAPP_Q5_1: return (blocks){4, 1, 0, 1, 0, 0};
	case VAPP_IQ4_NL: return (blocks){4, 0, 0, 0, 0, TABLE_IQ4};
	case VAPP_IQ4_XS: return (blocks){4, 0, 1, 0, 0, TABLE_IQ4};
	case VAPP_EXPANDED: return (blocks){4, 0, 2, 0, 0, TABLE_EIGHTHS};
	case VAPP_Q2_K: return (blocks){2, 0, 2, 1, 0, 0};
	case VAPP_Q3_K: return (blocks){2, 1, 2, 0, 4, 0};
	case VAPP_Q4_K: return (blocks){4, 0, 1, 1, 0, 0};
	case VAPP_Q5_K: return (blocks){4, 1, 1, 1, 0, 0};
	case VAPP_Q6_K: return (blocks){4, 2, 2, 0, 32, 0};
	default: return (blocks){0};
	}
}

/* in_blocks reports whether a format has this layout. */
INLINE int in_blocks(int32_t format) { return blocks_of(format).low != 0; }

/* blocks_heads returns the bytes before the first fields or scales. */
INLINE int64_t blocks_heads(blocks b) { return 64 * (1 + b.least); }

/* blocks_each returns the bytes of 32 k's, without the heads of 128 k's. */
INLINE int64_t blocks_each(blocks b) { return 32 * b.subs * (1 + b.least) + 128 * (b.low + b.high); }

INLINE int64_t blocks_bytes(blocks b, int64_t n) {
	if (b.subs) return n / 128 * (blocks_heads(b) + 4 * blocks_each(b));
	return n / 32 * (blocks_heads(b) + blocks_each(b));
}

/* The values of the codes of IQ4_NL and IQ4_XS. */
#define IQ4_TABLE {-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113}

#endif
