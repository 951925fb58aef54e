/* stored_avx2_amd64.c: unpacking of stored.h with AVX2. */
#define VL 8
#include "stored_expand.h"

FN void vapp_expand_avx2(int32_t format, const uint8_t *panel, int64_t n, uint8_t *to) { expand(format, panel, n, to); }
