/* pool.h: threads that run lists of phases, one launch after the other.
 *
 * A phase is a function of kernels/cpu and its operands, cut into parts. Threads
 * take parts; a phase begins when all parts of the one before are finished. No call
 * of Go is made. */
#ifndef VAPP_POOL_H
#define VAPP_POOL_H
#include <stdint.h>

/* vapp_call and vapp_fn are those of kernels/cpu/native/shared/kernels.h. */
typedef struct {
	int32_t part, parts;
	const int32_t *rows; /* by symbol */
	int64_t *taken;      /* 0 when a phase begins, for its parts to count what they take; or NULL */
} vapp_call;

typedef void (*vapp_fn)(const void *args, const vapp_call *c);

/* vapp_time is what a phase took, in nanoseconds: [0] in launches whose sequences have
 * one token each, [1] in others. */
typedef struct {
	int64_t runs[2];
	int64_t wall[2]; /* from the end of the phase before to its own */
	int64_t busy[2]; /* of all threads together */
	int64_t idle[2]; /* of the first phase: from the end of the launch before to its own begin */
} vapp_time;

typedef struct {
	vapp_fn fn;
	const void *args;
	int32_t symbol; /* which of rows the work grows with */
	int32_t units;  /* of work in a row */
	int32_t grain;  /* units that are worth a part; 0: a part for every thread at any size */
	int32_t least;  /* with fewer rows there is nothing to do; 0: the phase always runs */
	vapp_time *time; /* or NULL: it is not measured */
} vapp_phase;

typedef struct vapp_pool vapp_pool;

/* vapp_pool_start makes a pool of n threads, pinned to the first n of the cpus
 * where there are as many; NULL and errno where the system refuses. share is the
 * part of the time, 0 to below 1, that is left to others who want it. */
vapp_pool *vapp_pool_start(int n, double share);

/* vapp_pool_launch queues a list; its number is what vapp_pool_wait takes. At
 * most VAPP_POOL_QUEUE launches may be unfinished. Symbols are tokens, samples, seqs,
 * then the chunks of so many tokens (0: there are none). */
enum { VAPP_POOL_QUEUE = 4, VAPP_POOL_CHUNKS = 16 };
uint32_t vapp_pool_launch(vapp_pool *p, const vapp_phase *list, int n, int32_t tokens, int32_t samples, int32_t seqs, int32_t chunk);

/* vapp_pool_wait returns when the launch has finished. */
void vapp_pool_wait(vapp_pool *p, uint32_t launch);

/* vapp_pool_done says whether it has. */
int vapp_pool_done(vapp_pool *p, uint32_t launch);

/* vapp_pool_stop finishes what was queued, ends the threads and frees the pool. */
void vapp_pool_stop(vapp_pool *p);

/* vapp_pool_rest returns the nanoseconds that a thread sleeps which had a processor for
 * busy of the last wall nanoseconds, so that share of the time since is left to others. */
int64_t vapp_pool_rest(int64_t busy, int64_t wall, double share);

/* The nanoseconds that the first thread slept for others, and those that it had a
 * processor. */
int64_t vapp_pool_rested(vapp_pool *p);
int64_t vapp_pool_worked(vapp_pool *p);

#endif
