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
/* Contention is sampled over WINDOW ns; a thread sleeps at most MAX_REST ns after a
 * launch. */
enum { WINDOW = 50000000, MAX_REST = 100000000 };
enum { STACK = 1 << 20 };

/* event is a number that only grows, and the count of threads that sleep until it does. */
typedef struct {
	_Alignas(64) _Atomic uint32_t word;
	_Atomic uint32_t sleepers;
} event;

typedef struct {
	const vapp_phase *list;
	int n;
	uint32_t number;
	int32_t rows[3 + VAPP_POOL_CHUNKS];
	_Atomic int64_t at; /* begin of its first phase, if measured */
	_Alignas(64) int64_t taken; /* vapp_call's counter for the running phase */
} launch;

typedef struct {
	_Alignas(64) vapp_pool *pool;
	int index, cpu; /* cpu -1: anywhere */
	pthread_t thread;
	int64_t wall, busy; /* clocks at the begin of the window */
	long switches;
	_Atomic int64_t rested;
} worker;

/* The state of the pool is one word: the next or running launch, its phase, the number of
 * parts of that phase, and the next part to take. A thread takes a part by
 * compare-and-swap of the word; the thread that finishes the last part of a phase
 * publishes the next phase. So a thread that sleeps, or that the system preempts between
 * two parts, delays no other: the others take its parts. */
enum { LAUNCH_BITS = 20, PHASE_BITS = 20, PART_BITS = 12 };
#define IDLE ((1u << PHASE_BITS) - 1) /* a phase: the launch is not posted */

typedef struct {
	uint32_t launch, phase, parts, next;
} place;

static uint64_t pack(place s)
{
	return ((uint64_t)(s.launch & ((1u << LAUNCH_BITS) - 1)) << (PHASE_BITS + 2 * PART_BITS)) |
	       ((uint64_t)s.phase << (2 * PART_BITS)) | ((uint64_t)s.parts << PART_BITS) | s.next;
}

static place unpack(uint64_t w)
{
	const uint64_t part = (1u << PART_BITS) - 1;
	return (place){(uint32_t)(w >> (PHASE_BITS + 2 * PART_BITS)), (uint32_t)(w >> (2 * PART_BITS)) & IDLE,
		(uint32_t)(w >> PART_BITS & part), (uint32_t)(w & part)};
}

struct vapp_pool {
	event turn, finished; /* turn: the state changed to another phase */
	_Alignas(64) _Atomic uint64_t state;
	_Alignas(64) _Atomic uint32_t done; /* finished parts of the phase */
	_Alignas(64) launch queue[VAPP_POOL_QUEUE];
	_Atomic uint32_t posted;
	_Atomic int stop;
	int n;
	int64_t spin; /* within a launch */
	double share;
	int64_t mark; /* when the last measured phase ended */
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

static void advance(event *e)
{
	atomic_fetch_add(&e->word, 1);
	if (atomic_load(&e->sleepers))
		syscall(SYS_futex, &e->word, FUTEX_WAKE_PRIVATE, 1 << 30, NULL, NULL, 0);
}

/* await returns when the word differs from old; it spins first. */
static void await(event *e, uint32_t old, int64_t spin)
{
	int64_t until = 0;
	for (int i = 0; atomic_load_explicit(&e->word, memory_order_acquire) == old; i++) {
		relax();
		if (i % 64 != 63)
			continue;
		int64_t t = now(CLOCK_MONOTONIC);
		if (!until)
			until = t + spin;
		else if (t > until)
			break;
	}
	if (atomic_load(&e->word) != old)
		return;
	atomic_fetch_add(&e->sleepers, 1);
	while (atomic_load(&e->word) == old)
		syscall(SYS_futex, &e->word, FUTEX_WAIT_PRIVATE, old, NULL, NULL, 0);
	atomic_fetch_sub(&e->sleepers, 1);
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

static void publish(vapp_pool *p, place s)
{
	atomic_store(&p->state, pack(s));
	advance(&p->turn);
}

/* begin publishes the first phase of a launch if it is posted and not yet published. Both
 * the thread that posts a launch and the one that finishes the previous launch call it;
 * one of them succeeds. */
static void begin(vapp_pool *p, uint32_t number)
{
	uint64_t idle = pack((place){number, IDLE, 0, 0});
	if ((int32_t)(atomic_load(&p->posted) - number) <= 0)
		return;
	launch *l = launch_of(p, number);
	int32_t parts = width(&l->list[0], l->rows, p->n);
	uint64_t first = pack((place){number, 0, parts > 1 ? (uint32_t)parts : 1, 0});
	if (atomic_compare_exchange_strong(&p->state, &idle, first))
		advance(&p->turn);
}

/* kind returns the index of a launch in a vapp_time. */
static int kind(const launch *l) { return l->rows[0] != l->rows[2]; }

static void work_on(launch *l, uint32_t phase, int32_t part, int32_t parts)
{
	const vapp_phase *f = &l->list[phase];
	vapp_call c = {part, parts, l->rows, &l->taken};
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
static void proceed(vapp_pool *p, launch *l, uint32_t phase)
{
	clock_phase(p, l, phase);
	for (phase++; phase < (uint32_t)l->n; phase++) {
		int32_t parts = width(&l->list[phase], l->rows, p->n);
		l->taken = 0;
		if (parts > 1) {
			publish(p, (place){l->number, phase, (uint32_t)parts, 0});
			return;
		}
		if (parts == 0)
			continue;
		work_on(l, phase, 0, 1);
		clock_phase(p, l, phase);
	}
	uint32_t next = l->number + 1;
	publish(p, (place){next, IDLE, 0, 0});
	advance(&p->finished);
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
 * preempted this thread since the window began, and does so again when it yields. */
static void rest(worker *w, double share)
{
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
			nanosleep(&t, NULL);
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
	if (w->cpu >= 0) {
		cpu_set_t set;
		CPU_ZERO(&set);
		CPU_SET(w->cpu, &set);
		sched_setaffinity(0, sizeof set, &set); /* on failure the thread is not pinned */
	}
	w->wall = now(CLOCK_MONOTONIC), w->busy = now(CLOCK_THREAD_CPUTIME_ID);
	for (uint32_t last = 0;;) {
		uint32_t turn = atomic_load(&p->turn.word);
		uint64_t word = atomic_load(&p->state);
		place s = unpack(word);
		if (s.launch != last) {
			rest(w, p->share);
			last = s.launch;
			continue;
		}
		if (s.next >= s.parts) {
			if (atomic_load(&p->stop))
				return NULL;
			await(&p->turn, turn, s.phase == IDLE ? IDLE_SPIN : p->spin);
			continue;
		}
		uint64_t taken = word + 1; /* s.next + 1 */
		if (!atomic_compare_exchange_weak(&p->state, &word, taken))
			continue;
		launch *l = launch_of(p, s.launch);
		work_on(l, s.phase, (int32_t)s.next, (int32_t)s.parts);
		if (atomic_fetch_add(&p->done, 1) + 1 == s.parts) {
			atomic_store(&p->done, 0);
			proceed(p, l, s.phase);
		}
	}
}

/* settle assigns a CPU to each worker if there are enough. */
static void settle(vapp_pool *p)
{
	cpu_set_t set;
	int next = 0, all = sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 0;
	p->spin = p->n <= all ? PHASE_SPIN : 0; /* with too few CPUs, a spinning thread may delay the one it waits for */
	for (int i = 0; i < p->n; i++)
		p->workers[i].cpu = -1;
	for (int c = 0; c < CPU_SETSIZE && next < p->n && p->n > 1 && p->n <= all; c++)
		if (CPU_ISSET(c, &set))
			p->workers[next++].cpu = c;
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
	if (err)
		p->n = i - 1;
	return err;
}

vapp_pool *vapp_pool_start(int n, double share)
{
	vapp_pool *p = aligned_alloc(64, (sizeof *p + 63) / 64 * 64);
	worker *w = aligned_alloc(64, sizeof *w * (size_t)n);
	if (!p || !w) {
		free(p);
		free(w);
		errno = ENOMEM;
		return NULL;
	}
	memset(p, 0, sizeof *p);
	memset(w, 0, sizeof *w * (size_t)n);
	p->n = n, p->share = share, p->workers = w;
	p->state = pack((place){0, IDLE, 0, 0});
	for (int i = 0; i < n; i++)
		w[i].pool = p, w[i].index = i;
	settle(p);
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
	l->list = list, l->n = n, l->number = number, l->at = 0, l->taken = 0;
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
		await(&p->finished, now, 0);
}

void vapp_pool_stop(vapp_pool *p)
{
	uint32_t posted = atomic_load(&p->posted);
	if (posted > 0 && p->n > 0)
		vapp_pool_wait(p, posted - 1);
	atomic_store(&p->stop, 1);
	advance(&p->turn);
	for (int i = 0; i < p->n; i++)
		pthread_join(p->workers[i].thread, NULL);
	free(p->workers);
	free(p);
}

int64_t vapp_pool_rested(vapp_pool *p) { return atomic_load(&p->workers[0].rested); }

int64_t vapp_pool_worked(vapp_pool *p)
{
	clockid_t c;
	return pthread_getcpuclockid(p->workers[0].thread, &c) == 0 ? now(c) : 0;
}
