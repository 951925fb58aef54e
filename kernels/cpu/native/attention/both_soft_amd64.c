/* both_soft_amd64.c: attention without a mask with AMX on tiles in memory, for tests on machines with
 * AVX-512: it needs no instruction of AVX-512 BF16. */
#define VAPP_VECTOR 512
#define VAPP_TILES
#define VAPP_SOFT_TILES
#include "../shared/target_avx512.h"
#include "both_amx.h"

void vapp_both_amx_soft(const void *args, const vapp_call *c)
{
	both_attention(tile_buffers, tile_run, args, c);
}
#include "../shared/target_end.h"
