/* pool.h: threads that run lists of phases, one launch after the other.
 *
 * A phase is a function of kernels/cpu and its operands, split into parts. Threads take
 * parts; a phase begins when all parts of the previous one are finished. The pool never
 * calls Go. */
#ifndef VAPP_POOL_H
#define VAPP_POOL_H
#include <stdint.h>

/* vapp_nodes, VAPP_TAKEN, vapp_call and vapp_fn are those of kernels/cpu/native/shared. */
typedef struct {
	int32_t node, nodes;    /* of the part, and how many there are; nodes 0: one */
	const int32_t *threads; /* [nodes+1]: the threads of the nodes before each */
} vapp_nodes;
enum { VAPP_TAKEN = 8 };

typedef struct {
	int32_t part, parts;
	const int32_t *rows; /* by symbol */
	int64_t *taken;      /* counters for the parts of a phase to share work, one for each node, VAPP_TAKEN apart, 0 at its start; or NULL */
	vapp_nodes nodes;
} vapp_call;

typedef void (*vapp_fn)(const void *args, const vapp_call *c);

/* vapp_time is the time of a phase in nanoseconds: [0] in launches with one token for each
 * sequence, [1] in others. */
typedef struct {
	int64_t runs[2];
	int64_t wall[2]; /* from the end of the previous phase to its own end */
	int64_t busy[2]; /* summed over threads */
	int64_t idle[2]; /* first phase only: from the end of the previous launch to its own begin */
} vapp_time;

typedef struct {
	vapp_fn fn;
	const void *args;
	int32_t symbol; /* index of the row count that determines the work */
	int32_t units;  /* units of work in a row */
	int32_t grain;  /* units that justify a part; 0: always a part for every thread */
	int32_t least;  /* the phase is skipped with fewer rows; 0: it always runs */
	vapp_time *time; /* NULL: not measured */
} vapp_phase;

typedef struct vapp_pool vapp_pool;

/* vapp_node is the threads of a node of the machine's memory and the CPUs that they run on.
 * n 0: all that the process may run on. */
typedef struct {
	int threads, n;
	const int *cpus;
} vapp_node;

/* vapp_pool_start returns a pool with the threads of all nodes. A node that has as many CPUs
 * as threads pins each thread to a CPU of its own. The threads of a node with fewer CPUs run on
 * all of them; no more of these threads are awake than there are CPUs, and fewer spin. On
 * failure it returns NULL and sets errno. share is the part of the time, 0 to below 1, that is
 * left to other threads. */
enum { VAPP_POOL_NODES = 64 };
vapp_pool *vapp_pool_start(const vapp_node *nodes, int n, double share);

/* vapp_pool_launch queues a list and returns its number for vapp_pool_wait. At most
 * VAPP_POOL_QUEUE launches may be unfinished. Row counts are tokens, samples, seqs, then
 * the tokens of each chunk of size chunk (0: no chunks). */
enum { VAPP_POOL_QUEUE = 4, VAPP_POOL_CHUNKS = 16 };
uint32_t vapp_pool_launch(vapp_pool *p, const vapp_phase *list, int n, int32_t tokens, int32_t samples, int32_t seqs, int32_t chunk);

/* vapp_pool_wait returns when the launch has finished. */
void vapp_pool_wait(vapp_pool *p, uint32_t launch);

/* vapp_pool_done returns 1 if the launch has finished, else 0. */
int vapp_pool_done(vapp_pool *p, uint32_t launch);

/* vapp_pool_stop waits for queued launches, ends the threads and frees the pool. */
void vapp_pool_stop(vapp_pool *p);

/* vapp_pool_rest returns how many nanoseconds a thread sleeps that used its processor for
 * busy of the last wall nanoseconds, so that share of the time is left to other threads. */
int64_t vapp_pool_rest(int64_t busy, int64_t wall, double share);

/* vapp_pool_rested returns the nanoseconds that the first thread slept for other threads,
 * vapp_pool_worked those that it had a processor. */
int64_t vapp_pool_rested(vapp_pool *p);
int64_t vapp_pool_worked(vapp_pool *p);

/* vapp_pool_counts are sums over the threads since the start: phases that were published,
 * threads that were woken for one, and the most threads that spun at a time on one node; the
 * last is counted on nodes with fewer CPUs than threads. */
typedef struct {
	int64_t phases, woken, spinning;
} vapp_pool_counts;
vapp_pool_counts vapp_pool_count(vapp_pool *p);

#endif
