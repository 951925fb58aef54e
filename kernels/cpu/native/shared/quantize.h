/* quantize.h: what weights are made of while they are packed. */
#ifndef VAPP_CPU_QUANTIZE_H
#define VAPP_CPU_QUANTIZE_H
#include <stdint.h>

/* vapp_quantize_e4m3 stores a row divided by its scale, max |x| / 448 (1 for a row of
 * zeros), and returns the scale; NaN or infinity where the row holds one. */
float vapp_quantize_e4m3(const float *x, int64_t n, uint8_t *dst);

void vapp_round_f16(const float *src, int64_t n, uint16_t *dst);

#endif
