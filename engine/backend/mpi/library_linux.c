#define _GNU_SOURCE
#include "library.h"

#include <dlfcn.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

/* Constants of Open MPI's mpi.h. */
enum { THREAD_SERIALIZED = 2 };

const char *vapp_mpi_load(vapp_mpi *m, const char *path) {
	/* Open MPI's plugins look for its symbols among the global ones. */
	m->library = dlopen(path, RTLD_NOW | RTLD_GLOBAL);
	return m->library ? NULL : dlerror();
}

int vapp_mpi_version(vapp_mpi *m, char *text) {
	int (*version)(char *, int *);
	*(void **)&version = dlsym(m->library, "MPI_Get_library_version");
	int n = 0;
	return version ? version(text, &n) : -1;
}

const char *vapp_mpi_bind(vapp_mpi *m) {
	const struct {
		const char *name;
		void *to;
	} symbols[] = {
		{"MPI_Init_thread", &m->init_thread},
		{"MPI_Finalize", &m->finalize},
		{"MPI_Comm_set_errhandler", &m->set_errhandler},
		{"MPI_Error_string", &m->error_string},
		{"MPI_Comm_rank", &m->comm_rank},
		{"MPI_Comm_size", &m->comm_size},
		{"MPI_Comm_split", &m->comm_split},
		{"MPI_Comm_free", &m->comm_free},
		{"MPI_Isend", &m->isend},
		{"MPI_Irecv", &m->irecv},
		{"MPI_Testall", &m->testall},
		{"MPI_Get_count", &m->get_count},
		{"MPI_Allreduce", &m->allreduce},
		{"ompi_mpi_comm_world", &m->comm_world},
		{"ompi_mpi_byte", &m->byte},
		{"ompi_mpi_float", &m->real},
		{"ompi_mpi_op_sum", &m->sum},
		{"ompi_mpi_errors_return", &m->errors_return},
	};
	for (size_t i = 0; i < sizeof symbols / sizeof *symbols; i++) {
		void *s = dlsym(m->library, symbols[i].name);
		if (!s)
			return symbols[i].name;
		*(void **)symbols[i].to = s;
	}
	return NULL;
}

void vapp_mpi_unload(vapp_mpi *m) {
	if (m->library)
		dlclose(m->library);
	m->library = NULL;
}

/* init_thread calls MPI_Init_thread and restores the handlers of signals. Go needs its own, for nil pointers too. Open
 * MPI leaves a signal that has a handler alone; the libraries of networks that it loads may not. */
static int init_thread(vapp_mpi *m, int *provided) {
	struct sigaction before[NSIG];
	for (int s = 1; s < NSIG; s++)
		if (sigaction(s, NULL, &before[s]) != 0)
			before[s].sa_handler = SIG_ERR;
	int rc = m->init_thread(NULL, NULL, THREAD_SERIALIZED, provided);
	for (int s = 1; s < NSIG; s++) {
		struct sigaction now;
		if (before[s].sa_handler != SIG_ERR && sigaction(s, NULL, &now) == 0 && now.sa_handler != before[s].sa_handler)
			sigaction(s, &before[s], NULL);
	}
	return rc;
}

int vapp_mpi_init(vapp_mpi *m, int *provided, vapp_comm *world) {
	int rc = init_thread(m, provided);
	if (rc)
		return rc;
	world->handle = m->comm_world;
	if ((rc = m->set_errhandler(world->handle, m->errors_return)) || (rc = m->comm_rank(world->handle, &world->rank)))
		return rc;
	return m->comm_size(world->handle, &world->size);
}

int vapp_mpi_finalize(vapp_mpi *m) { return m->finalize(); }

int vapp_mpi_split(vapp_mpi *m, const vapp_comm *from, int color, int key, vapp_comm *to) {
	int rc = m->comm_split(from->handle, color, key, &to->handle);
	if (rc || (rc = m->set_errhandler(to->handle, m->errors_return)) || (rc = m->comm_rank(to->handle, &to->rank)))
		return rc;
	return m->comm_size(to->handle, &to->size);
}

int vapp_mpi_free(vapp_mpi *m, vapp_comm *c) { return m->comm_free(&c->handle); }

void vapp_mpi_error(vapp_mpi *m, int code, char *text) {
	int n = 0;
	if (m->error_string(code, text, &n))
		strcpy(text, "a code that the library does not know");
}

void vapp_mpi_abort(vapp_mpi *m) { atomic_store(&m->aborted, 1); }
