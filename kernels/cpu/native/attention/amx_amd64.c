/* amx_amd64.c: attention with AMX, for pages of bf16 and of 8-bit floats. */
#define VAPP_VECTOR 512
#define VAPP_TILES
#include "../shared/target_amx.h"
#include "../shared/vec.h"
#undef VAPP_NAME
#define VAPP_NAME(f) VAPP_JOIN(vapp_, VAPP_JOIN(f, _amx))
#include "body.h"
#include "../shared/target_end.h"
