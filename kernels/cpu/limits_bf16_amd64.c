#include "target_bf16.h"

#include <string.h>

#include "kernels.h"

/* rounds × 12 dot products of bfloat16 pairs. */
void vapp_dot_bf16(const void *args, const vapp_call *c)
{
	const vapp_limit *a = args;
	volatile float one = 0.999f;
	__m512bh x = _mm512_cvtne2ps_pbh(_mm512_set1_ps(one), _mm512_set1_ps(one));
	__m512 acc[12];
	for (int i = 0; i < 12; i++)
		acc[i] = _mm512_set1_ps((float)i);
	for (int64_t k = 0; k < a->rounds; k++)
#pragma GCC unroll 12
		for (int i = 0; i < 12; i++)
			acc[i] = _mm512_dpbf16_ps(acc[i], x, x);
	for (int i = 1; i < 12; i++)
		acc[0] = _mm512_add_ps(acc[0], acc[i]);
	a->sink[c->part * 16] = _mm512_reduce_add_ps(acc[0]);
}

/* rounds × 4 products of tiles. */
void vapp_tiles_bf16(const void *args, const vapp_call *c)
{
	const vapp_limit *a = args;
	struct {
		uint8_t palette, start, reserved[14];
		uint16_t bytes[16];
		uint8_t rows[16];
	} config = {.palette = 1};
	for (int i = 0; i < 8; i++)
		config.bytes[i] = 64, config.rows[i] = 16;
	__asm__ volatile("" : : "r"(&config) : "memory"); /* the intrinsic reads 64 bytes, the compiler thinks 8 */
	_tile_loadconfig(&config);
	_tile_zero(0);
	_tile_zero(1);
	_tile_zero(2);
	_tile_zero(3);
	_tile_zero(4);
	_tile_zero(5);
	_tile_zero(6);
	_tile_zero(7);
	for (int64_t k = 0; k < a->rounds; k++) {
		_tile_dpbf16ps(0, 4, 6);
		_tile_dpbf16ps(1, 4, 7);
		_tile_dpbf16ps(2, 5, 6);
		_tile_dpbf16ps(3, 5, 7);
	}
	_tile_release();
	a->sink[c->part * 16] = 0;
}

#include "target_end.h"
