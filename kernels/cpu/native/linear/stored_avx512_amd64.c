/* stored_avx512_amd64.c: unpacking of stored.h with AVX-512. */
#define VL 16
#include "stored_expand.h"

FN void vapp_expand_avx512(int32_t format, const uint8_t *panel, int64_t n, uint8_t *to) { expand(format, panel, n, to); }
