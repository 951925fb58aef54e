/* quantize.h: conversions for packing weights. */
#ifndef VAPP_CPU_QUANTIZE_H
#define VAPP_CPU_QUANTIZE_H
#include <stdint.h>

/* vapp_quantize_e4m3 stores a row divided by its scale, which it returns: max |x| / 448, or 1
 * for a row of zeros. For a row with a NaN or an infinity it returns that. */
float vapp_quantize_e4m3(const float *x, int64_t n, uint8_t *dst);

void vapp_round_f16(const float *src, int64_t n, uint16_t *dst);

#endif
