//go:build linux && cgo && cuda

// The library's calls. Types and constants are those of nccl.h, the same since 2.18.
#include "nccl.h"
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { internal_error = 3, float32 = 7, sum = 0, mem_total = 3 };
enum { all_reduce, exchange, spread, all_gather, send, receive };  // Kind of nccl.go

typedef struct {
  char internal[128];
} unique_id;

struct vapp_nccl {
  void *library;
  int (*get_version)(int *);
  int (*get_unique_id)(unique_id *);
  const char *(*error_string)(int);
  const char *(*last_error)(void *);
  int (*init_rank)(void **, int, unique_id, int);
  int (*split)(void *, int, int, void **, void *);
  int (*async_error)(void *, int *);
  int (*abort)(void *);
  int (*destroy)(void *);
  int (*group_start)(void);
  int (*group_end)(void);
  int (*all_reduce)(const void *, void *, size_t, int, int, void *, void *);
  int (*all_gather)(const void *, void *, size_t, int, void *, void *);
  int (*send)(const void *, size_t, int, int, void *, void *);
  int (*recv)(void *, size_t, int, int, void *, void *);
  int (*mem_stats)(void *, int, uint64_t *);  // 0: older than 2.29
};

#define ENTRY(name, field) {name, offsetof(vapp_nccl, field)}
static const struct {
  const char *name;
  size_t at;
} entries[] = {
    ENTRY("ncclGetVersion", get_version),
    ENTRY("ncclGetUniqueId", get_unique_id),
    ENTRY("ncclGetErrorString", error_string),
    ENTRY("ncclGetLastError", last_error),
    ENTRY("ncclCommInitRank", init_rank),
    ENTRY("ncclCommGetAsyncError", async_error),
    ENTRY("ncclCommAbort", abort),
    ENTRY("ncclCommDestroy", destroy),
    ENTRY("ncclGroupStart", group_start),
    ENTRY("ncclGroupEnd", group_end),
    ENTRY("ncclAllReduce", all_reduce),
    ENTRY("ncclAllGather", all_gather),
    ENTRY("ncclSend", send),
    ENTRY("ncclRecv", recv),
    ENTRY("ncclCommSplit", split),        // 2.18
    ENTRY("ncclCommMemStats", mem_stats),
};

// optional is how many entries at the end may be missing: the version is compared first.
enum { optional = 2 };

static int resolve(vapp_nccl *lib, const char *name, char *why, size_t size) {
  // NCCL connects to peers when it first needs a connection, which blocks the caller, possibly in
  // a capture. With 0 it connects when a communicator is made.
  setenv("NCCL_RUNTIME_CONNECT", "0", 0);
  lib->library = dlopen(name, RTLD_NOW | RTLD_LOCAL);
  if (!lib->library) {
    const char *error = dlerror();
    snprintf(why, size, "%s", error ? error : "it cannot be loaded");
    return -1;
  }
  for (size_t i = 0; i < sizeof entries / sizeof *entries; i++) {
    void *f = dlsym(lib->library, entries[i].name);
    if (!f && i + optional < sizeof entries / sizeof *entries) {
      snprintf(why, size, "%s has no %s", name, entries[i].name);
      dlclose(lib->library);
      return -1;
    }
    memcpy((char *)lib + entries[i].at, &f, sizeof f);
  }
  return 0;
}

int vapp_nccl_load(vapp_nccl **out, const char *const *names, int n, char *why, size_t size) {
  vapp_nccl *lib = calloc(1, sizeof *lib);
  char later[512];
  for (int i = 0; i < n; i++)
    if (resolve(lib, names[i], i == 0 ? why : later, i == 0 ? size : sizeof later) == 0) {
      *out = lib;
      return 0;
    }
  free(lib);
  return -1;
}

int vapp_nccl_version(const vapp_nccl *lib, int *version) { return lib->get_version(version); }
int vapp_nccl_unique_id(const vapp_nccl *lib, void *id) { return lib->get_unique_id(id); }
const char *vapp_nccl_name(const vapp_nccl *lib, int code) { return lib->error_string(code); }

int vapp_ranks_join(vapp_ranks *g, const char **call) {
  unique_id id;
  memcpy(&id, g->id, sizeof id);
  int rank = g->stage * g->size + g->rank;
  *call = "ncclCommInitRank";
  int r = g->lib->init_rank(&g->world, g->stages * g->size, id, rank);
  g->tensor = g->world;
  if (r || g->stages == 1 || g->size == 1) return r;
  *call = "ncclCommSplit";
  g->tensor = 0;
  return g->lib->split(g->world, g->stage, rank, &g->tensor, 0);
}

// begin returns where rank r's part of n numbers begins: Part of nccl.go.
static size_t begin(const vapp_ranks *g, size_t n, int r) { return n * (size_t)r / (size_t)g->size; }

// parts is Exchange or Spread: one call, so that no rank waits for another's order.
static int parts(const vapp_ranks *g, const vapp_nccl_args *a, void *stream) {
  const float *x = (const float *)a->x;
  float *y = (float *)a->y;
  size_t n = (size_t)a->count, mine = begin(g, n, g->rank), own = begin(g, n, g->rank + 1) - mine;
  int r = g->lib->group_start();
  for (int k = 0; k < g->size && !r; k++) {
    size_t from = begin(g, n, k), part = begin(g, n, k + 1) - from;
    if (a->kind == exchange) {
      r = g->lib->send(x + from, part, float32, k, g->tensor, stream);
      if (!r) r = g->lib->recv(y + (size_t)k * own, own, float32, k, g->tensor, stream);
    } else if (k != g->rank) {
      r = g->lib->send(x + mine, own, float32, k, g->tensor, stream);
      if (!r) r = g->lib->recv(y + from, part, float32, k, g->tensor, stream);
    }
  }
  int end = g->lib->group_end();
  return r ? r : end;
}

int vapp_ranks_run(void *data, const void *args, void *stream) {
  const vapp_ranks *g = data;
  const vapp_nccl_args *a = args;
  const void *x = (const void *)a->x;
  void *y = (void *)a->y;
  size_t n = (size_t)a->count;
  int rank = g->stage * g->size + g->rank;
  if (!g->world || !g->tensor) return internal_error;  // left
  switch (a->kind) {
    case all_reduce: return g->lib->all_reduce(x, y, n, float32, sum, g->tensor, stream);
    case exchange:
    case spread: return parts(g, a, stream);
    case all_gather: return g->lib->all_gather(x, y, n, float32, g->tensor, stream);
    case send: return g->lib->send(x, n, float32, rank + g->size, g->world, stream);
    case receive: return g->lib->recv(y, n, float32, rank - g->size, g->world, stream);
  }
  return internal_error;
}

int vapp_ranks_error(const vapp_ranks *g, const char **detail) {
  void *const comms[] = {g->tensor, g->world};
  *detail = "";
  for (int i = 0; i < 2; i++) {
    int code = 0;
    if (!comms[i]) continue;
    int r = g->lib->async_error(comms[i], &code);
    if (!r) r = code;
    if (!r) continue;
    *detail = g->lib->last_error(comms[i]);
    return r;
  }
  return 0;
}

int64_t vapp_ranks_memory(const vapp_ranks *g) {
  uint64_t world = 0, tensor = 0;
  if (!g->lib->mem_stats || !g->world || g->lib->mem_stats(g->world, mem_total, &world)) return -1;
  if (g->tensor != g->world && g->lib->mem_stats(g->tensor, mem_total, &tensor)) return -1;
  return (int64_t)(world + tensor);
}

int vapp_ranks_leave(vapp_ranks *g, int abort) {
  int (*end)(void *) = abort ? g->lib->abort : g->lib->destroy;
  int r = 0, other = 0;
  if (g->tensor && g->tensor != g->world) r = end(g->tensor);
  if (g->world) other = end(g->world);
  g->tensor = g->world = 0;
  return r ? r : other;
}
