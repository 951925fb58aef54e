/* amx_soft_amd64.c: attention with AMX on tiles in memory, for tests on machines without AMX. */
#define VAPP_VECTOR 512
#define VAPP_TILES
#define VAPP_SOFT_TILES
#include "../shared/target_amx.h"
#include "../shared/vec.h"
#undef VAPP_NAME
#define VAPP_NAME(f) VAPP_JOIN(vapp_, VAPP_JOIN(f, _amx_soft))
#include "body.h"
#include "../shared/target_end.h"
