#define _GNU_SOURCE
#include "library.h"

#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* A wait spins for SPIN ns, then yields the processor between looks, and after YIELD ns sleeps NAP ns between them:
 * a rank that waits for a long step of another one leaves the cores to it. */
enum { SPIN = 50 * 1000, YIELD = 5 * 1000 * 1000, NAP = 20 * 1000 };
/* Looks between two readings of the clock. */
enum { LOOKS = 16 };

/* Constant of Open MPI's mpi.h. */
enum { ANY_TAG = -1 };

static int64_t now(void) {
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

int vapp_mpi_allocate(vapp_mpi *m, int ranks, int64_t part, int64_t direct, int64_t incoming, int bf16) {
	size_t n = 2 * (size_t)ranks;
	m->part = part;
	m->direct = direct;
	m->floats = incoming;
	m->requests = calloc(n, sizeof *m->requests);
	m->statuses = calloc(n, sizeof *m->statuses);
	m->terms = calloc(n, sizeof *m->terms);
	m->expected = calloc(n, sizeof *m->expected);
	m->incoming = malloc((size_t)incoming * sizeof *m->incoming);
	m->rounded = bf16 ? malloc((size_t)part * sizeof *m->rounded) : NULL;
	return m->requests && m->statuses && m->terms && m->expected && m->incoming && (m->rounded || !bf16) ? 0 : -1;
}

static int tag(int kind, uint32_t call) { return kind << VAPP_MPI_TAG_BITS | (int)(call & ((1 << VAPP_MPI_TAG_BITS) - 1)); }

/* begin starts a set of messages: receives are posted first, by receive, then sends. */
static void begin(vapp_mpi *m) { m->posted = m->receives = 0; }

static int receive(vapp_mpi *m, vapp_comm *c, int from, void *to, int bytes) {
	m->expected[m->posted] = bytes;
	m->receives++;
	return m->irecv(to, bytes, m->byte, from, ANY_TAG, c->handle, &m->requests[m->posted++]);
}

static int send(vapp_mpi *m, vapp_comm *c, int to, const void *from, int bytes, int tag) {
	return m->isend(from, bytes, m->byte, to, tag, c->handle, &m->requests[m->posted++]);
}

/* pause is a wait's count of looks, its begin and how long it lasted at the last reading of the clock. */
typedef struct {
	int looks;
	int64_t begin, waited;
} pause;

/* rest spends the time between two looks. It returns whether the deadline is over. */
static int rest(vapp_mpi *m, pause *p) {
	if (p->looks++ == 0) {
		p->begin = now();
		return 0;
	}
	if (p->waited <= SPIN && p->looks % LOOKS != 0)
		return 0;
	int64_t t = now();
	p->waited = t - p->begin;
	if (p->waited > YIELD) {
		struct timespec nap = {0, NAP};
		nanosleep(&nap, NULL);
	} else if (p->waited > SPIN) {
		sched_yield();
	}
	return m->deadline && t > m->deadline;
}

/* wait_all waits for the messages of the set, for an abort or for the deadline. */
static int wait_all(vapp_mpi *m) {
	for (pause p = {0};;) {
		if (atomic_load_explicit(&m->aborted, memory_order_relaxed))
			return VAPP_MPI_ABORTED;
		int done = 0;
		int rc = m->testall(m->posted, m->requests, &done, m->statuses);
		if (rc || done)
			return rc;
		if (rest(m, &p))
			return VAPP_MPI_TIMEOUT;
	}
}

/* finish waits for the set, whose messages have this tag. A peer that makes another call is a mismatch, and its
 * message may be cut off; an error of MPI without one is the error of its message. */
static int finish(vapp_mpi *m, vapp_comm *c, int tag) {
	int rc = wait_all(m);
	if (rc < 0)
		return rc;
	for (int i = 0; i < m->receives; i++) {
		vapp_mpi_status *s = &m->statuses[i];
		int bytes = 0;
		if (m->get_count(s, m->byte, &bytes) || (s->tag == tag && bytes == m->expected[i]))
			continue;
		m->mismatch.rank = c->rank;
		m->mismatch.peer = s->source;
		m->mismatch.tag = s->tag;
		m->mismatch.bytes = bytes;
		m->mismatch.wanted_tag = tag;
		m->mismatch.wanted_bytes = m->expected[i];
		return VAPP_MPI_MISMATCH;
	}
	for (int i = 0; rc && i < m->posted; i++)
		if (m->statuses[i].error)
			return m->statuses[i].error;
	return rc;
}

/* sum sums terms of each rank: those of this one are mine, of the others in incoming, one behind the other. */
static void sum(vapp_mpi *m, vapp_comm *c, float *out, const void *mine, int64_t n, int bf16) {
	size_t size = bf16 ? sizeof(uint16_t) : sizeof(float);
	const char *next = (const char *)m->incoming;
	for (int r = 0; r < c->size; r++) {
		m->terms[r] = r == c->rank ? mine : next;
		if (r != c->rank)
			next += (size_t)n * size;
	}
	(bf16 ? vapp_mpi_sum_bf16 : vapp_mpi_sum)(out, m->terms, c->size, n);
}

/* reduce_direct sends all terms to all ranks; each computes every sum. */
static int reduce_direct(vapp_mpi *m, vapp_comm *c, float *x, int64_t n, int bf16) {
	int rc, t = tag(VAPP_MPI_REDUCE, c->calls), bytes = (int)(n * (bf16 ? 2 : 4));
	char *next = (char *)m->incoming;
	const void *mine = bf16 ? (const void *)m->rounded : x;
	begin(m);
	for (int r = 0; r < c->size; r++) {
		if (r == c->rank)
			continue;
		if ((rc = receive(m, c, r, next, bytes)))
			return rc;
		next += bytes;
	}
	if (bf16)
		vapp_mpi_round(m->rounded, x, n);
	for (int i = 1; i < c->size; i++)
		if ((rc = send(m, c, (c->rank + i) % c->size, mine, bytes, t)))
			return rc;
	if ((rc = finish(m, c, t)))
		return rc;
	sum(m, c, x, mine, n, bf16);
	return 0;
}

/* reduce_parts has each rank sum one part of the values, and gathers the sums. They travel as f32, so that they are
 * those of reduce_direct. */
static int reduce_parts(vapp_mpi *m, vapp_comm *c, float *x, int64_t n, int bf16) {
	int rc, size = bf16 ? 2 : 4;
	int64_t from = n * c->rank / c->size, own = n * (c->rank + 1) / c->size - from;
	const char *terms = (const char *)x;
	char *next = (char *)m->incoming;
	begin(m);
	for (int r = 0; r < c->size; r++) {
		if (r == c->rank)
			continue;
		if ((rc = receive(m, c, r, next, (int)own * size)))
			return rc;
		next += own * size;
	}
	if (bf16) {
		vapp_mpi_round(m->rounded, x, n);
		terms = (const char *)m->rounded;
	}
	int t = tag(VAPP_MPI_SCATTER, c->calls);
	for (int i = 1; i < c->size; i++) {
		int r = (c->rank + i) % c->size;
		int64_t at = n * r / c->size, end = n * (r + 1) / c->size;
		if ((rc = send(m, c, r, terms + at * size, (int)(end - at) * size, t)))
			return rc;
	}
	if ((rc = finish(m, c, t)))
		return rc;
	sum(m, c, x + from, terms + from * size, own, bf16);
	begin(m);
	for (int r = 0; r < c->size; r++) {
		int64_t at = n * r / c->size, end = n * (r + 1) / c->size;
		if (r != c->rank && (rc = receive(m, c, r, x + at, (int)(end - at) * 4)))
			return rc;
	}
	t = tag(VAPP_MPI_SUMS, c->calls);
	for (int i = 1; i < c->size; i++)
		if ((rc = send(m, c, (c->rank + i) % c->size, x + from, (int)own * 4, t)))
			return rc;
	return finish(m, c, t);
}

int vapp_mpi_all_reduce(vapp_mpi *m, vapp_comm *c, float *x, int64_t n, int bf16) {
	m->deadline = 0;
	for (int64_t at = 0; at < n; at += m->part, c->calls++) {
		int64_t some = n - at < m->part ? n - at : m->part;
		int rc = (some <= m->direct ? reduce_direct : reduce_parts)(m, c, x + at, some, bf16);
		if (rc)
			return rc;
	}
	return 0;
}

/* gather_rows gathers rows of cols floats: one row arrives in y, several in incoming. */
static int gather_rows(vapp_mpi *m, vapp_comm *c, const float *x, float *y, int64_t rows, int64_t cols) {
	int rc, t = tag(VAPP_MPI_GATHER, c->calls), bytes = (int)(rows * cols * 4);
	float *next = m->incoming;
	begin(m);
	for (int r = 0; r < c->size; r++) {
		if (r == c->rank)
			continue;
		if ((rc = receive(m, c, r, rows == 1 ? y + r * cols : next, bytes)))
			return rc;
		next += rows * cols;
	}
	for (int i = 1; i < c->size; i++)
		if ((rc = send(m, c, (c->rank + i) % c->size, x, bytes, t)))
			return rc;
	if ((rc = finish(m, c, t)))
		return rc;
	next = m->incoming;
	for (int r = 0; r < c->size; r++) {
		const float *from = r == c->rank ? x : next;
		if (r != c->rank)
			next += rows * cols;
		else if (rows == 1)
			memcpy(y + r * cols, x, (size_t)cols * sizeof *y);
		for (int64_t i = 0; rows > 1 && i < rows; i++)
			memcpy(y + (i * c->size + r) * cols, from + i * cols, (size_t)cols * sizeof *y);
	}
	return 0;
}

int vapp_mpi_all_gather(vapp_mpi *m, vapp_comm *c, const float *x, float *y, int64_t rows, int64_t cols) {
	m->deadline = 0;
	int64_t most = m->floats / ((c->size - 1) * cols);
	if (most < 1)
		most = 1;
	for (int64_t at = 0; at < rows; at += most, c->calls++) {
		int rc = gather_rows(m, c, x + at * cols, y + at * cols * c->size, rows - at < most ? rows - at : most, cols);
		if (rc)
			return rc;
	}
	return 0;
}

int vapp_mpi_send(vapp_mpi *m, vapp_comm *c, const float *x, int bytes) {
	int rc, t = tag(VAPP_MPI_STAGE, c->sent++);
	m->deadline = 0;
	begin(m);
	return (rc = send(m, c, c->rank + 1, x, bytes, t)) ? rc : finish(m, c, t);
}

int vapp_mpi_receive(vapp_mpi *m, vapp_comm *c, float *x, int bytes) {
	int rc, t = tag(VAPP_MPI_STAGE, c->received++);
	m->deadline = 0;
	begin(m);
	return (rc = receive(m, c, c->rank - 1, x, bytes)) ? rc : finish(m, c, t);
}

int vapp_mpi_broadcast(vapp_mpi *m, vapp_comm *c, void *b, int bytes, int64_t timeout) {
	int rc = 0, t = tag(VAPP_MPI_BROADCAST, c->calls++);
	m->deadline = now() + timeout;
	begin(m);
	if (c->rank > 0)
		rc = receive(m, c, 0, b, bytes);
	for (int r = 1; c->rank == 0 && rc == 0 && r < c->size; r++)
		rc = send(m, c, r, b, bytes, t);
	return rc ? rc : finish(m, c, t);
}

int vapp_mpi_library_all_reduce(vapp_mpi *m, vapp_comm *c, float *x, int n) {
	return m->allreduce((void *)1 /* MPI_IN_PLACE */, x, n, m->real, m->sum, c->handle);
}
