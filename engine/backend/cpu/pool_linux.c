#define _GNU_SOURCE
#include "pool.h"

#include <errno.h>
#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

/* Nanoseconds that a thread without work spins before it sleeps. Within a launch the other
 * threads are about to finish a phase; between launches the wait is unknown. */
enum { PHASE_SPIN = 60000, IDLE_SPIN = 30000 };
/* Rounds after which a thread sleeps, whatever the clock says. */
enum { MOST_SPINS = 1 << 15 };
/* Contention is sampled over WINDOW ns; a thread sleeps at most MAX_REST ns after a
 * launch. */
enum { WINDOW = 50000000, MAX_REST = 100000000 };
enum { STACK = 1 << 20 };

/* event is a number that only grows, and the count of threads that sleep until it does. */
typedef struct {
	_Atomic uint32_t word, sleepers;
} event;

typedef struct {
	const vapp_phase *list;
	int n;
	uint32_t number;
	int32_t rows[3 + VAPP_POOL_CHUNKS];
	_Atomic int64_t at; /* begin of its first phase, if measured */
} launch;

typedef struct {
	_Alignas(64) vapp_pool *pool;
	int node, cpu; /* cpu -1: on any of the node's */
	pthread_t thread;
	int64_t wall, busy; /* clocks at the begin of the window */
	long switches;
	_Atomic int64_t rested;
} worker;

/* The state of the pool is one word: the next or running launch, its phase, and the number of
 * parts of that phase. Each node has a share of the parts, in proportion to its threads, and a
 * word with the next of them to take. A thread takes a part by compare-and-swap of a node's
 * word: its own node's while that has parts, then another's. The thread that finishes the last
 * part of a phase publishes the next phase. So a thread that sleeps, or that the system
 * preempts between two parts, delays no other: the others take its parts. And what the threads
 * of a node write for each part, they write to lines that only this node writes. */
enum { PHASE_BITS = 20, PART_BITS = 12 }; /* and 32 for the launch */
#define IDLE ((1u << PHASE_BITS) - 1) /* a phase: the launch is not posted */
#define BEGUN (IDLE - 1)              /* a phase: the launch's first phase is about to be published */

typedef struct {
	uint32_t launch, phase, parts; /* in a node's word: the next part */
} place;

static uint64_t pack(place s)
{
	return (uint64_t)s.launch << (PHASE_BITS + PART_BITS) | (uint64_t)s.phase << PART_BITS | s.parts;
}

static place unpack(uint64_t w)
{
	return (place){(uint32_t)(w >> (PHASE_BITS + PART_BITS)), (uint32_t)(w >> PART_BITS) & IDLE, (uint32_t)w & ((1u << PART_BITS) - 1)};
}

/* node is what the threads of a node share. Another node's threads write it only when they
 * take parts that its own threads left, or publish a phase. */
typedef struct {
	_Alignas(64) event turn; /* the state changed to another phase; in the line of next, which changes with it */
	_Atomic uint64_t next;
	_Alignas(64) _Atomic uint32_t done; /* finished parts of the phase */
	_Alignas(64) _Atomic int spinning, most; /* threads that spin, and the most of them so far; counted if crowded */
	_Atomic int resting;                     /* threads in rest's sleep */
	_Alignas(64) int threads, crowded; /* crowded: more threads than CPUs */
	int cpus;
	cpu_set_t set;
} node;

struct vapp_pool {
	event finished;
	_Alignas(64) _Atomic uint64_t state;
	_Atomic int64_t phases, woken; /* vapp_pool_counts, in the line that a publisher writes anyway */
	int64_t mark;                  /* when the last measured phase ended */
	_Alignas(64) _Atomic uint32_t done; /* nodes whose parts of the phase are finished */
	_Alignas(64) launch queue[VAPP_POOL_QUEUE];
	_Atomic uint32_t posted;
	_Alignas(64) _Atomic int stop; /* from here on nothing changes while threads run */
	int n, started, nodes;
	int32_t before[VAPP_POOL_NODES + 1]; /* threads of the nodes before each */
	node *node;
	int64_t *taken; /* vapp_call's counters for the running phase */
	double share;
	worker *workers;
};

static int64_t now(clockid_t c)
{
	struct timespec t;
	clock_gettime(c, &t);
	return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static inline void relax(void)
{
#if defined(__x86_64__) || defined(__i386__)
	__builtin_ia32_pause();
#elif defined(__aarch64__)
	__asm__ volatile("yield");
#endif
}

/* wake wakes up to `most` of the threads that sleep until the event, and returns how many. */
static long wake(event *e, int most)
{
	if (most <= 0 || !atomic_load(&e->sleepers))
		return 0;
	return syscall(SYS_futex, &e->word, FUTEX_WAKE_PRIVATE, most, NULL, NULL, 0);
}

/* spin returns when the word differs from old, after ns nanoseconds or after MOST_SPINS rounds. */
static void spin(event *e, uint32_t old, int64_t ns)
{
	int64_t until = 0;
	for (int i = 0; i < MOST_SPINS && atomic_load_explicit(&e->word, memory_order_acquire) == old; i++) {
		relax();
		if (i % 64 != 63)
			continue;
		int64_t t = now(CLOCK_MONOTONIC);
		if (!until)
			until = t + ns;
		else if (t > until)
			return;
	}
}

/* await sleeps until the word differs from old. */
static void await(event *e, uint32_t old)
{
	if (atomic_load(&e->word) != old)
		return;
	atomic_fetch_add(&e->sleepers, 1);
	while (atomic_load(&e->word) == old)
		syscall(SYS_futex, &e->word, FUTEX_WAIT_PRIVATE, old, NULL, NULL, 0);
	atomic_fetch_sub(&e->sleepers, 1);
}

/* await_turn spins, then sleeps, until the node's turn differs from old. Where threads share
 * CPUs, one less than there are CPUs may spin: the thread that they wait for has the last. */
static void await_turn(node *d, uint32_t old, int64_t ns)
{
	if (!d->crowded) {
		spin(&d->turn, old, ns);
	} else {
		int n = atomic_fetch_add(&d->spinning, 1) + 1, most = atomic_load(&d->most);
		if (n < d->cpus) {
			while (n > most && !atomic_compare_exchange_weak(&d->most, &most, n))
				;
			spin(&d->turn, old, ns);
		}
		atomic_fetch_sub(&d->spinning, 1);
	}
	await(&d->turn, old);
}

/* width returns the number of parts of a phase at these rows; 0: skip it. */
static int32_t width(const vapp_phase *f, const int32_t *rows, int32_t n)
{
	if (rows[f->symbol] < f->least)
		return 0;
	if (f->grain == 0)
		return n;
	int64_t w = ((int64_t)rows[f->symbol] * f->units + f->grain - 1) / f->grain;
	return w < 1 ? 1 : w < n ? (int32_t)w : n;
}

static launch *launch_of(vapp_pool *p, uint32_t number) { return &p->queue[number % VAPP_POOL_QUEUE]; }

/* first returns the first part of a node, of `parts`; of the number of nodes, parts. */
static uint32_t first(const vapp_pool *p, int node, uint32_t parts)
{
	if (p->nodes == 1)
		return node ? parts : 0;
	return (uint32_t)((uint64_t)parts * (uint32_t)p->before[node] / (uint32_t)p->n);
}

/* asleep returns how many threads of a node a phase of `parts` parts has to wake, at most. All
 * of them, if each has a CPU; else as many as have CPUs, less those that are awake. It is called
 * when the turn has changed: threads are counted as sleepers before they compare the turn, so
 * those that are not counted see the phase. */
static int asleep(node *d, uint32_t parts)
{
	if (!d->crowded)
		return d->threads;
	int want = (int)parts < d->cpus ? (int)parts : d->cpus;
	return want - (d->threads - (int)atomic_load(&d->turn.sleepers) - atomic_load(&d->resting));
}

/* publish makes s the state. If it has parts, no part of another phase is left, and no other
 * thread publishes. */
static void publish(vapp_pool *p, place s)
{
	for (int k = 0; k < p->nodes && s.parts > 0; k++)
		atomic_store(&p->node[k].next, pack((place){s.launch, s.phase, 0}));
	atomic_store_explicit(&p->phases, atomic_load_explicit(&p->phases, memory_order_relaxed) + (s.parts > 0), memory_order_relaxed);
	atomic_store(&p->state, pack(s));
	long woken = 0;
	for (int k = 0; k < p->nodes; k++) {
		node *d = &p->node[k];
		atomic_fetch_add(&d->turn.word, 1);
		woken += wake(&d->turn, asleep(d, s.parts));
	}
	if (woken > 0)
		atomic_fetch_add_explicit(&p->woken, woken, memory_order_relaxed);
}

/* begin publishes the first phase of a launch if it is posted and not yet published. Both
 * the thread that posts a launch and the one that finishes the previous launch call it;
 * one of them succeeds. */
static void begin(vapp_pool *p, uint32_t number)
{
	uint64_t idle = pack((place){number, IDLE, 0});
	if ((int32_t)(atomic_load(&p->posted) - number) <= 0)
		return;
	if (!atomic_compare_exchange_strong(&p->state, &idle, pack((place){number, BEGUN, 0})))
		return;
	launch *l = launch_of(p, number);
	int32_t parts = width(&l->list[0], l->rows, p->n);
	memset(p->taken, 0, sizeof *p->taken * VAPP_TAKEN * (size_t)p->nodes);
	publish(p, (place){number, 0, parts > 1 ? (uint32_t)parts : 1});
}

/* take returns a part of the phase for a thread of node `from`, and its node in *of; -1: none
 * is left, or the phase has ended. */
static int32_t take(vapp_pool *p, place s, int from, int *of)
{
	for (int i = 0; i < p->nodes && s.parts > 0; i++) {
		int k = from + i < p->nodes ? from + i : from + i - p->nodes;
		uint32_t begin = first(p, k, s.parts), end = first(p, k + 1, s.parts);
		uint64_t word = atomic_load(&p->node[k].next);
		for (place n = unpack(word); n.launch == s.launch && n.phase == s.phase && n.parts < end - begin; n = unpack(word))
			if (atomic_compare_exchange_weak(&p->node[k].next, &word, word + 1)) { /* n.parts + 1 */
				*of = k;
				return (int32_t)(begin + n.parts);
			}
	}
	return -1;
}

/* finished returns whether a part of node k was the last one of its phase. Each node counts its
 * own parts, then the pool the nodes. */
static int finished(vapp_pool *p, place s, int k)
{
	uint32_t busy = 0;
	if (atomic_fetch_add(&p->node[k].done, 1) + 1 < first(p, k + 1, s.parts) - first(p, k, s.parts))
		return 0;
	atomic_store_explicit(&p->node[k].done, 0, memory_order_relaxed); /* publish orders it */
	if (p->nodes == 1)
		return 1;
	for (int j = 0; j < p->nodes; j++)
		busy += first(p, j + 1, s.parts) > first(p, j, s.parts);
	if (atomic_fetch_add(&p->done, 1) + 1 < busy)
		return 0;
	atomic_store(&p->done, 0);
	return 1;
}

/* kind returns the index of a launch in a vapp_time. */
static int kind(const launch *l) { return l->rows[0] != l->rows[2]; }

static void work_on(vapp_pool *p, launch *l, uint32_t phase, int32_t part, int32_t parts, int node)
{
	const vapp_phase *f = &l->list[phase];
	vapp_call c = {part, parts, l->rows, p->taken, {node, p->nodes, p->before}};
	int64_t from = f->time ? now(CLOCK_MONOTONIC) : 0;
	if (phase == 0 && part == 0)
		atomic_store(&l->at, from);
	f->fn(f->args, &c);
	if (f->time)
		__atomic_fetch_add(&f->time->busy[kind(l)], now(CLOCK_MONOTONIC) - from, __ATOMIC_RELAXED);
}

/* clock_phase adds the time of a finished phase to its vapp_time. */
static void clock_phase(vapp_pool *p, launch *l, uint32_t phase)
{
	vapp_time *t = l->list[phase].time;
	if (!t)
		return;
	int64_t end = now(CLOCK_MONOTONIC), from = p->mark;
	int k = kind(l);
	int64_t begun = atomic_load(&l->at);
	if (phase == 0 && begun > from) {
		if (from)
			__atomic_fetch_add(&t->idle[k], begun - from, __ATOMIC_RELAXED);
		from = begun;
	}
	__atomic_fetch_add(&t->runs[k], 1, __ATOMIC_RELAXED);
	__atomic_fetch_add(&t->wall[k], end - from, __ATOMIC_RELAXED);
	p->mark = end;
}

/* proceed continues after a finished phase. It runs the next phase itself if that has one
 * part, publishes it if it has several, and finishes the launch after the last phase. */
static void proceed(vapp_pool *p, launch *l, uint32_t phase, int node)
{
	clock_phase(p, l, phase);
	for (phase++; phase < (uint32_t)l->n; phase++) {
		int32_t parts = width(&l->list[phase], l->rows, p->n);
		memset(p->taken, 0, sizeof *p->taken * VAPP_TAKEN * (size_t)p->nodes);
		if (parts > 1) {
			publish(p, (place){l->number, phase, (uint32_t)parts});
			return;
		}
		if (parts == 0)
			continue;
		work_on(p, l, phase, 0, 1, node);
		clock_phase(p, l, phase);
	}
	uint32_t next = l->number + 1;
	publish(p, (place){next, IDLE, 0});
	atomic_fetch_add(&p->finished.word, 1);
	wake(&p->finished, 1 << 30);
	begin(p, next);
}

/* waited_for returns whether another thread wants this processor now: it yields, and a
 * count of involuntary switches shows whether the processor was taken. */
static int waited_for(long *switches)
{
	struct rusage u;
	long before = *switches;
	sched_yield();
	getrusage(RUSAGE_THREAD, &u);
	*switches = u.ru_nivcsw;
	return u.ru_nivcsw != before;
}

int64_t vapp_pool_rest(int64_t busy, int64_t wall, double share)
{
	int64_t left = (int64_t)((double)busy / (1 - share)) - wall;
	return left < 0 ? 0 : left > MAX_REST ? MAX_REST : left;
}

/* rest sleeps for vapp_pool_rest if another thread wants this processor: the system
 * preempted this thread since the window began, and does so again when it yields. The phase that
 * it saw was published for an awake thread: it wakes another for it. */
static void rest(worker *w, double share)
{
	node *d = &w->pool->node[w->node];
	struct rusage u;
	if (share <= 0)
		return;
	getrusage(RUSAGE_THREAD, &u);
	int64_t wall = now(CLOCK_MONOTONIC), busy = now(CLOCK_THREAD_CPUTIME_ID);
	if (u.ru_nivcsw == w->switches && wall - w->wall < WINDOW)
		return;
	if (u.ru_nivcsw != w->switches && waited_for(&u.ru_nivcsw)) {
		int64_t left = vapp_pool_rest(busy - w->busy, wall - w->wall, share);
		if (left > 0) {
			struct timespec t = {left / 1000000000, left % 1000000000};
			atomic_fetch_add(&d->resting, 1);
			if (d->crowded)
				wake(&d->turn, 1);
			nanosleep(&t, NULL);
			atomic_fetch_sub(&d->resting, 1);
			atomic_fetch_add(&w->rested, left);
			wall += left;
		}
	}
	w->wall = wall, w->busy = busy, w->switches = u.ru_nivcsw;
}

static void *work(void *arg)
{
	worker *w = arg;
	vapp_pool *p = w->pool;
	node *home = &p->node[w->node];
	if (w->cpu >= 0) {
		cpu_set_t set;
		CPU_ZERO(&set);
		CPU_SET(w->cpu, &set);
		sched_setaffinity(0, sizeof set, &set); /* on failure the thread is not pinned */
	} else if (p->nodes > 1) {
		sched_setaffinity(0, sizeof home->set, &home->set);
	}
	w->wall = now(CLOCK_MONOTONIC), w->busy = now(CLOCK_THREAD_CPUTIME_ID);
	for (uint32_t last = 0;;) {
		uint32_t turn = atomic_load(&home->turn.word);
		place s = unpack(atomic_load(&p->state));
		int of;
		if (s.launch != last) {
			rest(w, p->share);
			last = s.launch;
			continue;
		}
		int32_t part = take(p, s, w->node, &of);
		if (part < 0) {
			if (atomic_load(&p->stop))
				return NULL;
			await_turn(home, turn, s.phase == IDLE ? IDLE_SPIN : PHASE_SPIN);
			continue;
		}
		launch *l = launch_of(p, s.launch);
		work_on(p, l, s.phase, part, (int32_t)s.parts, of);
		if (finished(p, s, of))
			proceed(p, l, s.phase, of);
	}
}

/* settle assigns the threads to nodes, and a CPU to each thread of a node that has enough. */
static void settle(vapp_pool *p, const vapp_node *nodes)
{
	int next = 0;
	for (int k = 0; k < p->nodes; k++) {
		node *d = &p->node[k];
		CPU_ZERO(&d->set);
		for (int i = 0; i < nodes[k].n; i++)
			CPU_SET(nodes[k].cpus[i], &d->set);
		if (nodes[k].n == 0 && sched_getaffinity(0, sizeof d->set, &d->set) != 0)
			CPU_ZERO(&d->set);
		/* A cpu_set_t has no CPU from 1024 on: threads of such a node are not pinned. */
		d->threads = nodes[k].threads, d->cpus = CPU_COUNT(&d->set) ? CPU_COUNT(&d->set) : d->threads;
		d->crowded = d->threads > d->cpus;
		p->before[k + 1] = p->before[k] + d->threads;
		for (int i = 0, c = -1; i < d->threads; i++, next++) {
			p->workers[next].node = k, p->workers[next].cpu = -1;
			if (d->crowded || p->n == 1)
				continue; /* a single thread is not pinned */
			for (c++; c < CPU_SETSIZE && !CPU_ISSET(c, &d->set); c++)
				;
			p->workers[next].cpu = c < CPU_SETSIZE ? c : -1;
		}
	}
}

static int start(vapp_pool *p)
{
	sigset_t all, old;
	pthread_attr_t attr;
	int err = 0, i;
	sigfillset(&all);
	pthread_attr_init(&attr);
	pthread_attr_setstacksize(&attr, STACK);
	pthread_sigmask(SIG_SETMASK, &all, &old); /* signals are for Go's threads */
	for (i = 0; i < p->n && !err; i++)
		err = pthread_create(&p->workers[i].thread, &attr, work, &p->workers[i]);
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	pthread_attr_destroy(&attr);
	p->started = err ? i - 1 : i;
	return err;
}

static void release(vapp_pool *p)
{
	if (p) {
		free(p->workers);
		free(p->node);
		free(p->taken);
	}
	free(p);
}

/* lines returns n zeroed things of size bytes, at a multiple of 64; NULL: no memory. */
static void *lines(size_t n, size_t size)
{
	size_t bytes = (n * size + 63) / 64 * 64;
	void *at = aligned_alloc(64, bytes);
	return at ? memset(at, 0, bytes) : NULL;
}

vapp_pool *vapp_pool_start(const vapp_node *nodes, int n, double share)
{
	int threads = 0;
	for (int k = 0; k < n; k++)
		threads += nodes[k].threads;
	if (n < 1 || n > VAPP_POOL_NODES || threads < 1 || threads >= 1 << PART_BITS) {
		errno = EINVAL;
		return NULL;
	}
	vapp_pool *p = lines(1, sizeof *p);
	if (p) {
		p->n = threads, p->nodes = n, p->share = share;
		p->workers = lines((size_t)threads, sizeof *p->workers);
		p->node = lines((size_t)n, sizeof *p->node);
		p->taken = lines((size_t)n * VAPP_TAKEN, sizeof *p->taken);
	}
	if (!p || !p->workers || !p->node || !p->taken) {
		release(p);
		errno = ENOMEM;
		return NULL;
	}
	p->state = pack((place){0, IDLE, 0});
	for (int i = 0; i < threads; i++)
		p->workers[i].pool = p;
	settle(p, nodes);
	int err = start(p);
	if (err) {
		vapp_pool_stop(p);
		errno = err;
		return NULL;
	}
	return p;
}

uint32_t vapp_pool_launch(vapp_pool *p, const vapp_phase *list, int n, int32_t tokens, int32_t samples, int32_t seqs, int32_t chunk)
{
	uint32_t number = atomic_load(&p->posted);
	launch *l = launch_of(p, number);
	l->list = list, l->n = n, l->number = number, l->at = 0;
	l->rows[0] = tokens, l->rows[1] = samples, l->rows[2] = seqs;
	for (int i = 0; i < VAPP_POOL_CHUNKS; i++) {
		int64_t left = tokens - (int64_t)i * chunk;
		l->rows[3 + i] = left < 0 ? 0 : left < chunk ? (int32_t)left : chunk;
	}
	atomic_store(&p->posted, number + 1);
	begin(p, number);
	return number;
}

int vapp_pool_done(vapp_pool *p, uint32_t launch)
{
	return (int32_t)(atomic_load(&p->finished.word) - launch) > 0;
}

void vapp_pool_wait(vapp_pool *p, uint32_t launch)
{
	uint32_t now = atomic_load(&p->finished.word);
	for (; (int32_t)(now - launch) <= 0; now = atomic_load(&p->finished.word))
		await(&p->finished, now);
}

void vapp_pool_stop(vapp_pool *p)
{
	uint32_t posted = atomic_load(&p->posted);
	if (posted > 0 && p->started > 0)
		vapp_pool_wait(p, posted - 1);
	atomic_store(&p->stop, 1);
	for (int k = 0; k < p->nodes; k++) {
		atomic_fetch_add(&p->node[k].turn.word, 1);
		wake(&p->node[k].turn, 1 << 30);
	}
	for (int i = 0; i < p->started; i++)
		pthread_join(p->workers[i].thread, NULL);
	release(p);
}

int64_t vapp_pool_rested(vapp_pool *p) { return atomic_load(&p->workers[0].rested); }

int64_t vapp_pool_worked(vapp_pool *p)
{
	clockid_t c;
	return pthread_getcpuclockid(p->workers[0].thread, &c) == 0 ? now(c) : 0;
}

vapp_pool_counts vapp_pool_count(vapp_pool *p)
{
	vapp_pool_counts c = {atomic_load(&p->phases), atomic_load(&p->woken), 0};
	for (int k = 0; k < p->nodes; k++)
		c.spinning = atomic_load(&p->node[k].most) > c.spinning ? atomic_load(&p->node[k].most) : c.spinning;
	return c;
}
