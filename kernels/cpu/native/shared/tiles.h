/* tiles.h: the eight tile registers of AMX, each 16 rows of 64 bytes. With VAPP_SOFT_TILES they
 * are arrays in memory, for tests on machines without AMX, and tiles_count.h counts their use.
 * VAPP_NO_SOFT_TILES leaves these kernels out of a binary.
 *
 * Tile numbers must be constants. tile_products adds to c [16 rows][16 outputs] float the
 * products of a [16 rows][32 k] bf16 and b [16 pairs of k][16 outputs][2] bf16. tile_codes does
 * the same in 32-bit integers, with signed bytes of x in a [16 rows][64 k] and unsigned bytes
 * in b [16 fours of k][16 outputs][4]. */
#ifndef VAPP_CPU_TILES_H
#define VAPP_CPU_TILES_H
#include <immintrin.h>
#include <stdint.h>
#include <string.h>

#include "tiles_count.h"

#define TILES_TARGET "avx512f,avx512bw,avx512dq,avx512vl,avx512bf16,avx2,fma,f16c"

#if !defined(VAPP_SOFT_TILES)

#define FN __attribute__((target(TILES_TARGET ",amx-tile,amx-bf16,amx-int8")))
#define tile_zero(t) _tile_zero(t)
#define tile_load(t, p, stride) _tile_loadd(t, p, stride)
#define tile_store(t, p, stride) _tile_stored(t, p, stride)
#define tile_products(c, a, b) _tile_dpbf16ps(c, a, b)
#define tile_codes(c, a, b) _tile_dpbsud(c, a, b)
#define tiles_end() _tile_release()
/* Some compilers do not know that tile_load reads memory. */
#define tiles_see_memory() __asm__ volatile("" ::: "memory")

typedef struct {
	uint8_t palette, start_row, reserved[14];
	uint16_t row_bytes[16];
	uint8_t rows[16];
} tile_config;

/* The barrier forces the whole configuration into memory: some compilers assume that the
 * instruction reads only its first bytes. */
FN static inline void tiles_begin(void) {
	tile_config c = {.palette = 1};
	for (int t = 0; t < 8; t++) c.row_bytes[t] = 64, c.rows[t] = 16;
	__asm__ volatile("" ::"r"(&c) : "memory");
	_tile_loadconfig(&c);
}

/* tiles_begin_of is tiles_begin for fewer k's: tiles 4 and 5 (x) have `bytes` bytes in a row,
 * tiles 6 and 7 (weights) have `rows` rows. */
FN static inline void tiles_begin_of(int bytes, int rows) {
	tile_config c = {.palette = 1};
	for (int t = 0; t < 8; t++) c.row_bytes[t] = t == 4 || t == 5 ? bytes : 64, c.rows[t] = t > 5 ? rows : 16;
	__asm__ volatile("" ::"r"(&c) : "memory");
	_tile_loadconfig(&c);
}

/* tiles_begin_rows is tiles_begin with `rows` rows in the tiles of sums (0 to 3) and of x (4, 5). */
FN static inline void tiles_begin_rows(int rows) {
	tile_config c = {.palette = 1};
	for (int t = 0; t < 8; t++) c.row_bytes[t] = 64, c.rows[t] = t > 5 ? 16 : rows;
	__asm__ volatile("" ::"r"(&c) : "memory");
	_tile_loadconfig(&c);
}

#else

#define FN __attribute__((target(TILES_TARGET)))

static __thread uint8_t soft_tiles[8][16][64];
static __thread struct {
	int bytes, rows;
} soft_shape[8];

static inline void tiles_begin_of(int bytes, int rows) {
	memset(soft_tiles, 0, sizeof soft_tiles);
	for (int t = 0; t < 8; t++) soft_shape[t].bytes = t == 4 || t == 5 ? bytes : 64, soft_shape[t].rows = t > 5 ? rows : 16;
}
static inline void tiles_begin(void) { tiles_begin_of(64, 16); }
static inline void tiles_begin_rows(int rows) {
	tiles_begin();
	for (int t = 0; t < 6; t++) soft_shape[t].rows = rows;
}
static inline void tiles_end(void) {}
static inline void tiles_see_memory(void) { __asm__ volatile("" ::: "memory"); }
static inline void tile_zero(int t) { memset(soft_tiles[t], 0, sizeof soft_tiles[t]); }
static inline void tile_load(int t, const void *p, int64_t stride) {
	for (int r = 0; r < soft_shape[t].rows; r++) memcpy(soft_tiles[t][r], (const uint8_t *)p + r * stride, soft_shape[t].bytes);
	if (!VAPP_COUNTING) return;
	vapp_tiles_counted->loads++;
	for (int r = 0; r < soft_shape[t].rows; r++) vapp_tiles_touch(VAPP_BY_TILE, (const uint8_t *)p + r * stride, soft_shape[t].bytes);
}
static inline void tile_store(int t, void *p, int64_t stride) {
	for (int r = 0; r < soft_shape[t].rows; r++) memcpy((uint8_t *)p + r * stride, soft_tiles[t][r], 64);
	if (!VAPP_COUNTING) return;
	vapp_tiles_counted->stores++;
	for (int r = 0; r < soft_shape[t].rows; r++) vapp_tiles_touch(VAPP_BY_STORE, (uint8_t *)p + r * stride, 64);
}

/* As Intel documents the instruction: the products of even and of odd k's are summed separately
 * with fused multiply-adds, the two sums are added, and the result is added to the tile.
 * Denormals are zero, so MXCSR's DAZ and FTZ are set; the barriers keep the products between. */
FN static inline void tile_products(int c, int a, int b) {
	__m512 even[16], odd[16], e[4], o[4];
	const __m512i upper = _mm512_set1_epi32((int)0xffff0000);
	unsigned csr = _mm_getcsr();
	if (VAPP_COUNTING) vapp_tiles_counted->products++;
	_mm_setcsr(csr | 0x8040);
	tiles_see_memory();
	for (int k = 0; k < 16; k++) {
		__m512i w = _mm512_loadu_si512(soft_tiles[b][k]);
		even[k] = (__m512)_mm512_slli_epi32(w, 16), odd[k] = (__m512)_mm512_and_si512(w, upper);
	}
	for (int r = 0; r < 16; r += 4) {
		for (int i = 0; i < 4; i++) e[i] = o[i] = _mm512_setzero_ps();
		for (int k = 0; k < 16; k++)
			for (int i = 0; i < 4; i++) {
				int32_t x;
				memcpy(&x, &soft_tiles[a][r + i][4 * k], 4);
				__m512i w = _mm512_set1_epi32(x);
				e[i] = _mm512_fmadd_ps((__m512)_mm512_slli_epi32(w, 16), even[k], e[i]);
				o[i] = _mm512_fmadd_ps((__m512)_mm512_and_si512(w, upper), odd[k], o[i]);
			}
		for (int i = 0; i < 4; i++) {
			float *sum = (float *)soft_tiles[c][r + i];
			_mm512_storeu_ps(sum, _mm512_add_ps(_mm512_loadu_ps(sum), _mm512_add_ps(e[i], o[i])));
		}
	}
	tiles_see_memory();
	_mm_setcsr(csr);
}

/* Signed bytes of x times unsigned codes; the 32-bit sums wrap. */
static inline void tile_codes(int c, int a, int b) {
	if (VAPP_COUNTING) vapp_tiles_counted->products++;
	for (int r = 0; r < 16; r++)
		for (int k = 0; k < soft_shape[b].rows; k++)
			for (int n = 0; n < 16; n++) {
				uint32_t sum;
				memcpy(&sum, &soft_tiles[c][r][4 * n], 4);
				for (int j = 0; j < 4; j++) sum += (uint32_t)((int8_t)soft_tiles[a][r][4 * k + j] * (int)soft_tiles[b][k][4 * n + j]);
				memcpy(&soft_tiles[c][r][4 * n], &sum, 4);
			}
}

#endif
#endif
