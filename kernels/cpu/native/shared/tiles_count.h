/* tiles_count.h: what a kernel on tiles in memory (VAPP_SOFT_TILES) loads, multiplies and
 * stores, counted, with a model of a core's caches. Machines without AMX cannot measure a kernel
 * on tiles; counts show what its order of work reads from where.
 *
 * The model is a 48 KiB first and a 2 MiB second cache (Sapphire Rapids) of 64-byte lines. Each
 * drops the line that was used longest ago and has no sets, so counts do not depend on where
 * memory was allocated. A line that is read or stored comes to both. The hardware's own
 * prefetching is not modelled; other threads are not either.
 *
 * tiles.h counts tiles. Kernels report the rest with the macros below, which compile to nothing
 * without VAPP_SOFT_TILES:
 *
 *   tile_fetch(p)       prefetches the line at p to the second cache (T1); both kinds of build
 *   tile_fetch_near(p)  prefetches it to the first cache (T0)
 *   tile_stream(p, v)   stores 16 floats at p, aligned to 64 bytes, past the caches
 *   count_read(p, n)    says that vectors read n bytes at p
 *   count_stored(p, n)  says that vectors stored n bytes at p
 *   count_unpack(n)     says that n vector instructions unpacked or converted weights
 */
#ifndef VAPP_CPU_TILES_COUNT_H
#define VAPP_CPU_TILES_COUNT_H
#include <stdint.h>

/* What touches a line. */
enum { VAPP_BY_TILE, VAPP_BY_VECTOR, VAPP_BY_STORE, VAPP_BY_FETCH, VAPP_BY_FETCH_NEAR, VAPP_BY_ALL };

/* Bytes are of whole lines, by where the line was: 0 the first cache, 1 the second, 2 beyond. */
typedef struct {
	int64_t loads, products, stores; /* of tiles */
	int64_t unpacks;                 /* instructions */
	int64_t bytes[VAPP_BY_ALL][3];
	int64_t streamed; /* bytes stored past the caches */
} vapp_tile_counts;

/* vapp_count_tiles starts counting on this thread, with empty caches; vapp_counted_tiles ends it
 * and returns the counts. They return 0 if there is no memory for the model or nothing was
 * started. */
int vapp_count_tiles(void);
int vapp_counted_tiles(vapp_tile_counts *counts);

/* This thread's counts; NULL: nothing is counted. */
extern __thread vapp_tile_counts *vapp_tiles_counted;

/* vapp_tiles_touch counts n bytes at p and moves their lines. vapp_tiles_past counts them as
 * stored past the caches. */
void vapp_tiles_touch(int by, const void *p, int64_t n);
void vapp_tiles_past(const void *p, int64_t n);

#if defined(VAPP_SOFT_TILES)
#define VAPP_COUNTING __builtin_expect(vapp_tiles_counted != 0, 0)
#define count_read(p, n) (VAPP_COUNTING ? vapp_tiles_touch(VAPP_BY_VECTOR, p, n) : (void)0)
#define count_stored(p, n) (VAPP_COUNTING ? vapp_tiles_touch(VAPP_BY_STORE, p, n) : (void)0)
#define count_unpack(n) (VAPP_COUNTING ? (void)(vapp_tiles_counted->unpacks += (n)) : (void)0)
#define tile_fetch(p) (VAPP_COUNTING ? vapp_tiles_touch(VAPP_BY_FETCH, p, 1) : (void)0)
#define tile_fetch_near(p) (VAPP_COUNTING ? vapp_tiles_touch(VAPP_BY_FETCH_NEAR, p, 1) : (void)0)
#define tile_stream(p, v) (VAPP_COUNTING ? vapp_tiles_past(p, 64) : (void)0, _mm512_stream_ps(p, v))
#else
#define count_read(p, n) ((void)0)
#define count_stored(p, n) ((void)0)
#define count_unpack(n) ((void)0)
#define tile_fetch(p) __builtin_prefetch(p, 0, 2)
#define tile_fetch_near(p) __builtin_prefetch(p)
#define tile_stream(p, v) _mm512_stream_ps(p, v)
#endif

#endif
