/* limits_int8_amd64.c: how fast AVX-512 VNNI and AMX-INT8 multiply. */
#include <immintrin.h>

#include "kernels.h"

/* rounds × 12 dot products of four bytes. */
__attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,avx512vnni"))) void vapp_dot_int8(const void *args, const vapp_call *c)
{
	const vapp_limit *a = args;
	volatile int one = 0x01010101;
	__m512i x = _mm512_set1_epi32(one), acc[12];
	for (int i = 0; i < 12; i++)
		acc[i] = _mm512_set1_epi32(i);
	for (int64_t k = 0; k < a->rounds; k++)
#pragma GCC unroll 12
		for (int i = 0; i < 12; i++)
			acc[i] = _mm512_dpbusd_epi32(acc[i], x, x);
	for (int i = 1; i < 12; i++)
		acc[0] = _mm512_add_epi32(acc[0], acc[i]);
	a->sink[c->part * 16] = (float)_mm512_reduce_add_epi32(acc[0]);
}

/* rounds × 4 products of tiles. */
__attribute__((target("avx512f,amx-tile,amx-int8"))) void vapp_tiles_int8(const void *args, const vapp_call *c)
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
		_tile_dpbsud(0, 4, 6);
		_tile_dpbsud(1, 4, 7);
		_tile_dpbsud(2, 5, 6);
		_tile_dpbsud(3, 5, 7);
	}
	_tile_release();
	a->sink[c->part * 16] = 0;
}
