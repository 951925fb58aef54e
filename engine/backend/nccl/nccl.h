// NCCL's communicators of a rank: see group.go.
#pragma once
#include <stddef.h>
#include <stdint.h>

typedef struct vapp_nccl vapp_nccl;

// vapp_nccl_load opens the first library of names that has all functions. On failure it returns
// −1, and why is the reason.
int vapp_nccl_load(vapp_nccl **out, const char *const *names, int n, char *why, size_t size);
int vapp_nccl_version(const vapp_nccl *lib, int *version);
int vapp_nccl_unique_id(const vapp_nccl *lib, void *id);
const char *vapp_nccl_name(const vapp_nccl *lib, int code);

// vapp_ranks are the communicators of a rank: of all ranks, and of the tensor parallel ranks of
// its stage. The two are the same if there is one stage.
typedef struct {
  const vapp_nccl *lib;
  void *world, *tensor;
  int rank, size;    // among the tensor parallel ranks
  int stage, stages;
  char id[128];
} vapp_ranks;

// vapp_ranks_join joins the other ranks, which it waits for without a limit. A context is
// current. On failure, call is the function that failed.
int vapp_ranks_join(vapp_ranks *g, const char **call);
// vapp_ranks_run launches a collective on a stream; args is a vapp_nccl_args, data a vapp_ranks.
int vapp_ranks_run(void *data, const void *args, void *stream);
// vapp_ranks_error returns the error of the communicators, 0 for none, and what the library says
// of it.
int vapp_ranks_error(const vapp_ranks *g, const char **detail);
// vapp_ranks_memory returns the device bytes of the communicators; −1: the library does not say.
int64_t vapp_ranks_memory(const vapp_ranks *g);
// vapp_ranks_leave destroys the communicators, whose work has ended, or aborts them.
int vapp_ranks_leave(vapp_ranks *g, int abort);

// Args of group.go.
typedef struct {
  uint64_t x, y;
  int32_t count, kind;
} vapp_nccl_args;
