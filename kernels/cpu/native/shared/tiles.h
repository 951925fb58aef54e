/* tiles.h: the eight tile registers of AMX, each 16 rows of 64 bytes. With VAPP_SOFT_TILES they
 * are arrays in memory, for machines without AMX.
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

#else

#define FN __attribute__((target(TILES_TARGET)))

static __thread uint8_t soft_tiles[8][16][64];
static __thread struct {
	int bytes, rows;
} soft_shape[8];
static __thread struct {
	int64_t loads, products;
} soft_count; /* since it was last read */

static inline void tiles_begin_of(int bytes, int rows) {
	memset(soft_tiles, 0, sizeof soft_tiles);
	for (int t = 0; t < 8; t++) soft_shape[t].bytes = t == 4 || t == 5 ? bytes : 64, soft_shape[t].rows = t > 5 ? rows : 16;
}
static inline void tiles_begin(void) { tiles_begin_of(64, 16); }
static inline void tiles_end(void) {}
static inline void tiles_see_memory(void) {}
static inline void tile_zero(int t) { memset(soft_tiles[t], 0, sizeof soft_tiles[t]); }
static inline void tile_load(int t, const void *p, int64_t stride) {
	for (int r = 0; r < soft_shape[t].rows; r++) memcpy(soft_tiles[t][r], (const uint8_t *)p + r * stride, soft_shape[t].bytes);
	soft_count.loads++;
}
static inline void tile_store(int t, void *p, int64_t stride) {
	for (int r = 0; r < 16; r++) memcpy((uint8_t *)p + r * stride, soft_tiles[t][r], 64);
}

/* soft_float converts a bf16 as TDPBF16PS reads it: denormals are zero. */
static inline float soft_float(const uint8_t *p) {
	uint16_t h;
	memcpy(&h, p, 2);
	uint32_t bits = (uint32_t)((h & 0x7f80) == 0 ? h & 0x8000 : h) << 16;
	float f;
	memcpy(&f, &bits, 4);
	return f;
}

static inline float soft_flush(float f) { return __builtin_fabsf(f) < 0x1p-126f ? __builtin_copysignf(0, f) : f; }

/* As Intel documents the instruction: the products of even and of odd k's are summed separately
 * with fused multiply-adds, the two sums are added, and the result is added to the tile.
 * Denormals are zero. */
FN static inline void tile_products(int c, int a, int b) {
	soft_count.products++;
	for (int r = 0; r < 16; r++)
		for (int n = 0; n < 16; n++) {
			float even = 0, odd = 0, sum;
			for (int k = 0; k < 16; k++) {
				even = soft_flush(__builtin_fmaf(soft_float(&soft_tiles[a][r][4 * k]), soft_float(&soft_tiles[b][k][4 * n]), even));
				odd = soft_flush(__builtin_fmaf(soft_float(&soft_tiles[a][r][4 * k + 2]), soft_float(&soft_tiles[b][k][4 * n + 2]), odd));
			}
			memcpy(&sum, &soft_tiles[c][r][4 * n], 4);
			sum = soft_flush(soft_flush(sum) + soft_flush(even + odd));
			memcpy(&soft_tiles[c][r][4 * n], &sum, 4);
		}
}

/* Signed bytes of x times unsigned codes; the 32-bit sums wrap. */
static inline void tile_codes(int c, int a, int b) {
	soft_count.products++;
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
