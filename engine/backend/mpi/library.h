#ifndef VAPP_MPI_LIBRARY_H
#define VAPP_MPI_LIBRARY_H

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

/* Results of calls: 0, an error code of MPI, which is positive, or one of these. */
enum { VAPP_MPI_ABORTED = -1, VAPP_MPI_TIMEOUT = -2, VAPP_MPI_MISMATCH = -3 };

/* What a message belongs to: the upper bits of its tag. The lower bits count calls. */
enum { VAPP_MPI_BROADCAST = 1, VAPP_MPI_REDUCE, VAPP_MPI_SCATTER, VAPP_MPI_SUMS, VAPP_MPI_GATHER, VAPP_MPI_STAGE };
enum { VAPP_MPI_TAG_BITS = 12 };

/* Bytes for a library's version: MPICH writes up to 8,192, Open MPI up to 256. */
enum { VAPP_MPI_VERSION = 8192, VAPP_MPI_ERROR = 256 };

/* status is MPI_Status of Open MPI 4 and 5. */
typedef struct {
	int source, tag, error, cancelled;
	size_t count;
} vapp_mpi_status;

/* vapp_comm is a communicator. Its counters are equal on ranks that make the same calls. */
typedef struct {
	void *handle;
	int rank, size;
	uint32_t calls, sent, received;
} vapp_comm;

/* vapp_mpi is a loaded library, and the state of the call that runs. */
typedef struct {
	void *library;
	int (*version)(char *, int *);
	int (*init_thread)(int *, char ***, int, int *);
	int (*finalize)(void);
	int (*set_errhandler)(void *, void *);
	int (*error_string)(int, char *, int *);
	int (*comm_rank)(void *, int *);
	int (*comm_size)(void *, int *);
	int (*comm_split)(void *, int, int, void **);
	int (*comm_free)(void **);
	int (*isend)(const void *, int, void *, int, int, void *, void **);
	int (*irecv)(void *, int, void *, int, int, void *, void **);
	int (*testall)(int, void **, int *, vapp_mpi_status *);
	int (*get_count)(const vapp_mpi_status *, void *, int *);
	int (*allreduce)(const void *, void *, int, void *, void *, void *);
	void *comm_world, *byte, *real, *sum, *errors_return;

	_Atomic int aborted;
	int64_t deadline; /* of the call that runs, by the monotonic clock; 0 for none */

	/* The requests of the call that runs, receives first. */
	void **requests;
	vapp_mpi_status *statuses;
	const void **terms;
	int *expected;
	int posted, receives;

	/* What did not match: what peer sent, and what this rank receives. */
	struct {
		int rank, peer, tag, bytes, wanted_tag, wanted_bytes;
	} mismatch;

	int64_t part, direct, floats;
	float *incoming;   /* terms of the other ranks: floats of them */
	uint16_t *rounded; /* this rank's terms in bf16: part of them */
} vapp_mpi;

/* Loading: each returns a text of the loader or the name of a missing symbol, NULL if all is well. */
const char *vapp_mpi_load(vapp_mpi *m, const char *path);
const char *vapp_mpi_bind(vapp_mpi *m);
int vapp_mpi_version(vapp_mpi *m, char *text); /* -1: the library has no MPI_Get_library_version */
void vapp_mpi_unload(vapp_mpi *m);

int vapp_mpi_init(vapp_mpi *m, int *provided, vapp_comm *world);
int vapp_mpi_finalize(vapp_mpi *m);
int vapp_mpi_split(vapp_mpi *m, const vapp_comm *from, int color, int key, vapp_comm *to);
int vapp_mpi_free(vapp_mpi *m, vapp_comm *c);
void vapp_mpi_error(vapp_mpi *m, int code, char *text);
void vapp_mpi_abort(vapp_mpi *m);

/* Allocates the buffers: part is the number of floats of an all_reduce's message at most, direct the number up to which
 * ranks exchange whole values, incoming what the terms of the other ranks need. -1: no memory. */
int vapp_mpi_allocate(vapp_mpi *m, int ranks, int64_t part, int64_t direct, int64_t incoming, int bf16);

int vapp_mpi_all_reduce(vapp_mpi *m, vapp_comm *c, float *x, int64_t n, int bf16);
int vapp_mpi_all_gather(vapp_mpi *m, vapp_comm *c, const float *x, float *y, int64_t rows, int64_t cols);
int vapp_mpi_send(vapp_mpi *m, vapp_comm *c, const float *x, int bytes);
int vapp_mpi_receive(vapp_mpi *m, vapp_comm *c, float *x, int bytes);
int vapp_mpi_broadcast(vapp_mpi *m, vapp_comm *c, void *b, int bytes, int64_t timeout);
int vapp_mpi_library_all_reduce(vapp_mpi *m, vapp_comm *c, float *x, int n);

/* Sums of f32 or bf16 in the order of terms; out may be one of them. */
void vapp_mpi_sum(float *out, const void *const *terms, int ranks, int64_t n);
void vapp_mpi_sum_bf16(float *out, const void *const *terms, int ranks, int64_t n);
void vapp_mpi_round(uint16_t *out, const float *x, int64_t n);

#endif
