//go:build linux && cgo && cuda

// Products by cuBLASLt, libcublasLt.so.13 or .12; blas_paths.go says where it is looked for. Types
// and constants are those of cublasLt.h in CUDA 12 and 13.
#include "native.h"
#include <dlfcn.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
  invalid_value = 7,  // cublasStatus_t
  real_32f = 0, real_16f = 2, real_16bf = 14, real_8f_e4m3 = 28,
  compute_32f = 68,
  transposed = 1,
  epilogue_bias = 4,
  desc_transa = 3, desc_epilogue = 7, desc_bias_pointer = 8, desc_a_scale_pointer = 17, desc_b_scale_pointer = 18, desc_bias_data_type = 26,
  desc_a_scale_mode = 31, desc_b_scale_mode = 32,
  scale_outer_vec_32f = 3, scale_vec128_32f = 4, scale_blk128x128_32f = 5,
  preference_workspace = 1, preference_reduction = 3, preference_alignment_a = 5,
  reduction_compute_type = 2,
};

typedef struct {
  uint64_t data[8];
} algorithm;

typedef struct {
  algorithm algo;
  size_t workspace;
  int state;
  float waves;
  int reserved[4];
} heuristic;

struct vapp_blas {
  void *library, *handle;
  size_t (*get_version)(void);
  const char *(*status_name)(int);
  int (*create)(void **);
  int (*destroy)(void *);
  int (*desc_create)(void **, int, int);
  int (*desc_destroy)(void *);
  int (*desc_set)(void *, int, const void *, size_t);
  int (*layout_create)(void **, int, uint64_t, uint64_t, int64_t);
  int (*layout_destroy)(void *);
  int (*preference_create)(void **);
  int (*preference_destroy)(void *);
  int (*preference_set)(void *, int, const void *, size_t);
  int (*find)(void *, void *, void *, void *, void *, void *, void *, int, heuristic *, int *);
  int (*matmul)(void *, void *, const void *, const void *, void *, const void *, void *, const void *, const void *, void *, void *, void *,
                const algorithm *, void *, size_t, CUstream);
};

// vapp_shape is a product with a fixed number of rows: its layouts, the algorithms that the library
// offers, its best first, and the one that is used.
struct vapp_shape {
  void *w, *x, *y;
  algorithm offered[VAPP_ALGORITHMS];
  int count, used;
  int loaded;  // the one that is used has run once: its kernel is on the device
};

// The functions of the library, and the fields for their addresses.
#define ENTRY(name, field) {name, offsetof(vapp_blas, field)}
static const struct {
  const char *name;
  size_t at;
} entries[] = {
    ENTRY("cublasLtGetVersion", get_version),
    ENTRY("cublasLtGetStatusName", status_name),
    ENTRY("cublasLtCreate", create),
    ENTRY("cublasLtDestroy", destroy),
    ENTRY("cublasLtMatmulDescCreate", desc_create),
    ENTRY("cublasLtMatmulDescDestroy", desc_destroy),
    ENTRY("cublasLtMatmulDescSetAttribute", desc_set),
    ENTRY("cublasLtMatrixLayoutCreate", layout_create),
    ENTRY("cublasLtMatrixLayoutDestroy", layout_destroy),
    ENTRY("cublasLtMatmulPreferenceCreate", preference_create),
    ENTRY("cublasLtMatmulPreferenceDestroy", preference_destroy),
    ENTRY("cublasLtMatmulPreferenceSetAttribute", preference_set),
    ENTRY("cublasLtMatmulAlgoGetHeuristic", find),
    ENTRY("cublasLtMatmul", matmul),
};

int vapp_blas_load(vapp_blas **out, const char *name, char *why, size_t size) {
  vapp_blas *b = calloc(1, sizeof *b);
  *out = 0;
  b->library = dlopen(name, RTLD_NOW | RTLD_LOCAL);
  if (!b->library) {
    const char *error = dlerror();
    snprintf(why, size, "%s", error ? error : "it cannot be loaded");
    free(b);
    return -1;
  }
  for (size_t i = 0; i < sizeof entries / sizeof *entries; i++) {
    void *f = dlsym(b->library, entries[i].name);
    if (!f) {
      snprintf(why, size, "%s has no %s", name, entries[i].name);
      vapp_blas_unload(b);
      return -1;
    }
    memcpy((char *)b + entries[i].at, &f, sizeof f);
  }
  *out = b;
  return 0;
}

void vapp_blas_unload(vapp_blas *b) {
  dlclose(b->library);
  free(b);
}

size_t vapp_blas_version(const vapp_blas *b) { return b->get_version(); }
const char *vapp_blas_status(const vapp_blas *b, int status) { return b->status_name(status); }
int vapp_blas_create(vapp_blas *b) { return b->create(&b->handle); }

// The library stays loaded, because its registrations with the driver last as long as the
// process.
int vapp_blas_close(vapp_blas *b) { return b->handle ? b->destroy(b->handle) : 0; }

int vapp_blas_desc(const vapp_blas *b, CUdeviceptr bias, CUdeviceptr w_scales, CUdeviceptr x_scales, int blocks, void **out) {
  const int32_t t = transposed, type = real_32f;
  const int32_t w_mode = blocks ? scale_blk128x128_32f : scale_outer_vec_32f, x_mode = blocks ? scale_vec128_32f : scale_outer_vec_32f;
  const uint32_t epilogue = epilogue_bias;
  int status = b->desc_create(out, compute_32f, real_32f);
  if (!status) status = b->desc_set(*out, desc_transa, &t, sizeof t);
  if (!status && bias) {
    status = b->desc_set(*out, desc_epilogue, &epilogue, sizeof epilogue);
    if (!status) status = b->desc_set(*out, desc_bias_pointer, &bias, sizeof bias);
    if (!status) status = b->desc_set(*out, desc_bias_data_type, &type, sizeof type);
  }
  if (!status && w_scales) {  // sums keep the library's default precision, not fast accumulation
    status = b->desc_set(*out, desc_a_scale_mode, &w_mode, sizeof w_mode);
    if (!status) status = b->desc_set(*out, desc_b_scale_mode, &x_mode, sizeof x_mode);
    if (!status) status = b->desc_set(*out, desc_a_scale_pointer, &w_scales, sizeof w_scales);
    if (!status) status = b->desc_set(*out, desc_b_scale_pointer, &x_scales, sizeof x_scales);
  }
  return status;
}

void vapp_blas_free_desc(const vapp_blas *b, void *desc) {
  if (desc) b->desc_destroy(desc);
}

// The library's matrices are column-major. So our row-major matrices are, to it, W [in, out]
// (transposed in the product), X [in, rows] and Y [out, rows]. Sums in float32 have results in
// float32 or bf16 for W and X in bf16, and in E4M3 with either kind of scales: the tables of types
// in https://docs.nvidia.com/cuda/cublas/#cublasltmatmul, whose note excludes only results in 8 bits.
int vapp_blas_shape(const vapp_blas *b, const vapp_shape_args *a, void *desc, vapp_shape **out, int *found) {
  vapp_shape *s = calloc(1, sizeof *s);
  void *preference = 0;
  heuristic list[VAPP_ALGORITHMS];
  int listed = 0;
  memset(list, 0, sizeof list);
  const int types[] = {[vapp_bf16] = real_16bf, [vapp_f16] = real_16f, [vapp_e4m3] = real_8f_e4m3}, type = types[a->numbers];
  *out = s;
  *found = 0;
  int status = b->layout_create(&s->w, type, (uint64_t)a->in, (uint64_t)a->out, a->in);
  if (!status) status = b->layout_create(&s->x, type, (uint64_t)a->in, (uint64_t)a->rows, a->in);
  if (!status) status = b->layout_create(&s->y, a->y_bf16 ? real_16bf : real_32f, (uint64_t)a->out, (uint64_t)a->rows, a->out);
  if (!status) status = b->preference_create(&preference);
  if (!status) status = b->preference_set(preference, preference_workspace, &a->workspace, sizeof a->workspace);
  const uint32_t reduction = reduction_compute_type;  // sums of parts of the inputs are float32, not Y's bf16
  if (!status && a->y_bf16) status = b->preference_set(preference, preference_reduction, &reduction, sizeof reduction);
  for (int i = 0; i < 4 && !status; i++) {
    uint32_t aligned = i < 2 ? a->aligned : a->aligned_y;  // W and X, then C and D, which are Y
    status = b->preference_set(preference, preference_alignment_a + i, &aligned, sizeof aligned);
  }
  if (!status) {
    // Without an algorithm, some versions return a status, others a count of 0.
    if (b->find(b->handle, desc, s->w, s->x, s->y, s->y, preference, VAPP_ALGORITHMS, list, &listed)) listed = 0;
    for (int i = 0; i < listed && i < VAPP_ALGORITHMS; i++)
      if (!list[i].state && list[i].workspace <= a->workspace) s->offered[s->count++] = list[i].algo;
    *found = s->count;
  }
  if (preference) b->preference_destroy(preference);
  return status;
}

void vapp_blas_free_shape(const vapp_blas *b, vapp_shape *s) {
  if (s->w) b->layout_destroy(s->w);
  if (s->x) b->layout_destroy(s->x);
  if (s->y) b->layout_destroy(s->y);
  free(s);
}

int vapp_shape_run(const vapp_blas *b, const vapp_shape *s, int i, void *desc, CUdeviceptr w, CUdeviceptr x, CUdeviceptr y, CUdeviceptr workspace,
                   size_t bytes, CUstream stream) {
  static const float one = 1.0f, none = 0.0f;
  return b->matmul(b->handle, desc, &one, (const void *)w, s->w, (const void *)x, s->x, &none, (const void *)y, s->y, (void *)y, s->y, &s->offered[i],
                   (void *)workspace, bytes, stream);
}

int vapp_shape_count(const vapp_shape *s) { return s->count; }
const void *vapp_shape_offered(const vapp_shape *s, int i) { return &s->offered[i]; }

void vapp_shape_use(vapp_shape *s, int i) {
  s->used = i;
  s->loaded = 0;
}

int vapp_product_loaded(const vapp_product *p, int32_t rows) {
  return rows < 1 || rows > p->most || p->shapes[(rows - 1) / p->unit]->loaded;
}

int vapp_product_run(const vapp_product *p, int32_t rows, CUstream stream) {
  if (rows < 1 || rows > p->most) return invalid_value;
  const vapp_blas *b = p->blas;
  vapp_shape *s = p->shapes[(rows - 1) / p->unit];
  int status = vapp_shape_run(b, s, s->used, p->desc, p->w, p->x, p->y, p->workspace, p->bytes, stream);
  if (!status) s->loaded = 1;
  return status;
}
