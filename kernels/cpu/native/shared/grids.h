/* grids.h: the grids of GGUF's IQ formats. An entry has eight indices of two bits, or for IQ3 four
 * of four bits, the first in the lowest bits; an index is the place of a magnitude in the format's
 * list. A grid ends with one more word, so that its entries can be read as dwords. */
#ifndef VAPP_CPU_GRIDS_H
#define VAPP_CPU_GRIDS_H
#include <stdint.h>

extern const uint16_t vapp_grid_iq2_xxs[257], vapp_grid_iq2_xs[513], vapp_grid_iq2_s[1025];
extern const uint16_t vapp_grid_iq1_s[2049]; /* of IQ1_M too */
extern const uint16_t vapp_grid_iq3_xxs[257], vapp_grid_iq3_s[513];

#endif
