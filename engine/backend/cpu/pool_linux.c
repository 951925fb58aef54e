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

/* How long a thread spins before it sleeps: at a barrier the others are about to
 * arrive, between launches nobody knows. */
enum { BARRIER_SPIN = 60000, IDLE_SPIN = 30000 };
/* Who wants a processor shows within a window; the longest rest after a launch. */
enum { WINDOW = 50000000, MAX_REST = 100000000 };
enum { STACK = 1 << 20 };

/* event is a number that only grows, and those who sleep until it does. */
typedef struct {
	_Alignas(64) _Atomic uint32_t word;
	_Atomic uint32_t sleepers;
} event;

typedef struct {
	const vapp_phase *list; /* NULL: the pool stops */
	int n;
	int32_t rows[3];
} launch;

typedef struct {
	_Alignas(64) vapp_pool *pool;
	int index, cpu; /* cpu -1: anywhere */
	pthread_t thread;
	int64_t wall, busy; /* when the window of the share began */
	long switches;
	_Atomic int64_t rested;
} worker;

struct vapp_pool {
	event posted, finished, barrier;
	_Alignas(64) _Atomic uint32_t arrived;
	_Alignas(64) launch queue[VAPP_POOL_QUEUE];
	int n;
	int64_t spin; /* at a barrier */
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

static void advance(event *e)
{
	atomic_fetch_add(&e->word, 1);
	if (atomic_load(&e->sleepers))
		syscall(SYS_futex, &e->word, FUTEX_WAKE_PRIVATE, 1 << 30, NULL, NULL, 0);
}

/* await returns when the word is no longer old; it spins for a while first. */
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

static void meet(vapp_pool *p)
{
	uint32_t old = atomic_load(&p->barrier.word);
	if (p->n == 1)
		return;
	if (atomic_fetch_add(&p->arrived, 1) + 1 == (uint32_t)p->n) {
		atomic_store(&p->arrived, 0);
		advance(&p->barrier);
	} else {
		await(&p->barrier, old, p->spin);
	}
}

/* width is how many parts a phase is worth at these rows. */
static int32_t width(const vapp_phase *f, const int32_t *rows, int32_t n)
{
	if (f->grain == 0)
		return n;
	int64_t w = ((int64_t)rows[f->symbol] * f->units + f->grain - 1) / f->grain;
	return w < 1 ? 1 : w < n ? (int32_t)w : n;
}

static void run(vapp_pool *p, const launch *l, int index)
{
	int wide = 0; /* since the last barrier more than one thread worked */
	int n = l->n; /* the slot may be another launch's after the last barrier */
	vapp_call c = {index, 1, {l->rows[0], l->rows[1], l->rows[2]}};
	c.parts = width(&l->list[0], c.rows, p->n);
	for (int k = 0; k < n; k++) {
		const vapp_phase *f = &l->list[k];
		if (index < c.parts)
			f->fn(f->args, &c);
		wide |= c.parts > 1;
		if (k + 1 < n)
			c.parts = width(f + 1, c.rows, p->n);
		if (f->flow || (!wide && c.parts == 1 && k + 1 < n))
			continue;
		meet(p);
		wide = 0;
	}
}

/* rest leaves the share of this thread's time to others, if there are any: if the
 * system took the processor away, somebody wanted it. The share is of the time since
 * the window began, what others had and what the thread slept or waited included. */
static void rest(worker *w, double share)
{
	struct rusage u;
	if (share <= 0)
		return;
	getrusage(RUSAGE_THREAD, &u);
	int64_t wall = now(CLOCK_MONOTONIC), busy = now(CLOCK_THREAD_CPUTIME_ID);
	if (u.ru_nivcsw == w->switches && wall - w->wall < WINDOW)
		return;
	if (u.ru_nivcsw != w->switches) {
		int64_t left = (int64_t)((double)(busy - w->busy) / (1 - share)) - (wall - w->wall);
		left = left > MAX_REST ? MAX_REST : left;
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
		sched_setaffinity(0, sizeof set, &set); /* refused: the thread floats */
	}
	w->wall = now(CLOCK_MONOTONIC), w->busy = now(CLOCK_THREAD_CPUTIME_ID);
	for (uint32_t number = 0;; number++) {
		await(&p->posted, number, IDLE_SPIN);
		const launch *l = &p->queue[number % VAPP_POOL_QUEUE];
		if (!l->list)
			return NULL;
		run(p, l, w->index);
		if (w->index == 0)
			advance(&p->finished);
		rest(w, p->share);
	}
}

/* place gives each worker a processor of its own where there are enough. */
static void place(vapp_pool *p)
{
	cpu_set_t set;
	int next = 0, all = sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 0;
	p->spin = p->n <= all ? BARRIER_SPIN : 0; /* who spins may be in the way of whom it waits for */
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
	for (int i = 0; i < n; i++)
		w[i].pool = p, w[i].index = i;
	place(p);
	int err = start(p);
	if (err) {
		vapp_pool_stop(p);
		errno = err;
		return NULL;
	}
	return p;
}

uint32_t vapp_pool_launch(vapp_pool *p, const vapp_phase *list, int n, int32_t tokens, int32_t samples, int32_t seqs)
{
	uint32_t number = atomic_load(&p->posted.word);
	p->queue[number % VAPP_POOL_QUEUE] = (launch){list, n, {tokens, samples, seqs}};
	advance(&p->posted);
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
	vapp_pool_launch(p, NULL, 0, 0, 0, 0);
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
