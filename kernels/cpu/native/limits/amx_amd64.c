/* amx_amd64.c: the rate at which AMX multiplies tiles of bf16 and of int8 that are loaded once. */
#include "../shared/kernels.h"
#include "../shared/tiles.h"

/* TILES_RATE does rounds × 4 products of tiles of zeros; each sum tile has its own pair of
 * operands. */
#define TILES_RATE(name, products) \
	FN void name(const void *args, const vapp_call *c) \
	{ \
		const vapp_limit *a = args; \
		tiles_begin(); \
		tile_zero(0); \
		tile_zero(1); \
		tile_zero(2); \
		tile_zero(3); \
		tile_zero(4); \
		tile_zero(5); \
		tile_zero(6); \
		tile_zero(7); \
		for (int64_t k = 0; k < a->rounds; k++) { \
			products(0, 4, 6); \
			products(1, 4, 7); \
			products(2, 5, 6); \
			products(3, 5, 7); \
		} \
		tiles_end(); \
		a->sink[c->part * 16] = 0; \
	}

TILES_RATE(vapp_tiles_bf16, tile_products)
TILES_RATE(vapp_tiles_int8, tile_codes)
