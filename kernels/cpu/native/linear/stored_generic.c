/* stored_generic.c: unpacking of stored.h in portable C. */
#define VL 4
#include "stored_expand.h"

void vapp_expand_generic(int32_t format, const uint8_t *panel, int64_t n, uint8_t *to) { expand(format, panel, n, to); }
