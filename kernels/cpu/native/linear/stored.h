/* stored.h: formats whose blocks a panel keeps as a file has them, bytes of 32 rows side by side:
 * per 256 k [bytes of a block][32]. So a weight takes no more memory than in the file.
 *
 * A part of a product unpacks some panels into its work as VAPP_EXPANDED, whose kernels then
 * multiply; they stay in the second cache. VAPP_EXPANDED is a layout of blocks.h with codes of four
 * bits, scales of 16 k's and a table of the format:
 *
 *   IQ2_XXS, IQ2_XS, IQ2_S, IQ3_XXS, IQ3_S   the index of a grid's magnitude, and its sign as bit 3
 *   IQ1_S, IQ1_M                             the same, of the grid's number plus or minus 1/8
 *   TQ1_0, TQ2_0                             the digit; the scale is 1
 *
 * A number is exactly d·scale·table[code], as the format means it. */
#ifndef VAPP_CPU_LINEAR_STORED_H
#define VAPP_CPU_LINEAR_STORED_H
#include <stdint.h>

#include "panel.h"

enum {
	STORED_WORK = 393216, /* bytes of unpacked panels, if that is more than one */
	STORED_MOST = 8       /* panels that are unpacked at once */
};

/* stored_panels returns how many panels of `in` k's are unpacked at once; one row is multiplied
 * with pairs of them. */
INLINE int64_t stored_panels(int64_t in) {
	int64_t n = STORED_WORK / panel_bytes(VAPP_EXPANDED, in);
	if (n > STORED_MOST) n = STORED_MOST;
	return n < 2 ? 1 : n & ~(int64_t)1;
}

/* vapp_linear_stored returns the kernel of a variant, or NULL if this build has none. */
const vapp_linear_kernel *vapp_linear_stored(int variant);

/* A function that unpacks n blocks of 256 k of a panel. */
typedef void (*vapp_expand_fn)(int32_t format, const uint8_t *panel, int64_t n, uint8_t *to);
void vapp_expand_generic(int32_t format, const uint8_t *panel, int64_t n, uint8_t *to);
void vapp_expand_avx2(int32_t format, const uint8_t *panel, int64_t n, uint8_t *to);
void vapp_expand_avx512(int32_t format, const uint8_t *panel, int64_t n, uint8_t *to);

#endif
