/* avx512bf16_amd64.c: attention with AVX-512 BF16, for pages of bf16 and of 8-bit floats. */
#define VAPP_VECTOR 512
#define VAPP_PAIRS
#include "../shared/target_avx512bf16.h"
#include "../shared/vec.h"
#undef VAPP_NAME
#define VAPP_NAME(f) VAPP_JOIN(vapp_, VAPP_JOIN(f, _avx512bf16))
#include "body.h"

void vapp_attention_pack_avx512bf16(const void *args, const vapp_call *c) { both_pack(args, c); }
#include "../shared/target_end.h"
