/* attention_amx_amd64.c: attention with AMX, on pages of bf16. */
#define VAPP_VECTOR 512
#define VAPP_TILES
#include "target_bf16.h"
#include "vec.h"
#undef VAPP_NAME
#define VAPP_NAME(f) VAPP_JOIN(vapp_, VAPP_JOIN(f, _amx))
#include "attention_body.h"
#include "target_end.h"
