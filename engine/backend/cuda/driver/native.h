// Functions that gorgonia.org/cu lacks: see native.go.
#pragma once
#include <cuda.h>
#include <stdint.h>

// The library: shim.c.
int vapp_cuda_status(void);           // result of the library's cuInit; CUDA_ERROR_NO_DEVICE without a library
const char *vapp_cuda_missing(void);  // why the library is missing, or ""
void *vapp_cuda_entry(const char *name);

// vapp_symbol is a number of a launch that is known when the list runs: ceil(bound[of]·times
// / over) + plus.
typedef struct {
  int32_t of, at, dim, times, over, plus;
} vapp_symbol;

// cuBLASLt and requests to it: cublaslt.c. Statuses are the library's; 0 is success.
typedef struct vapp_blas vapp_blas;
typedef struct vapp_shape vapp_shape;

// vapp_shape_args describe a product: Y [rows, out] in float32, or with y_bf16 1 in bf16, = X
// [rows, in] · Wᵀ, with W [out, in] and X in format numbers. Addresses are multiples of aligned,
// Y's of aligned_y.
enum { vapp_bf16, vapp_f16, vapp_e4m3 };
typedef struct {
  int64_t in, out, rows;
  uint64_t workspace;  // most bytes that it may use
  uint32_t numbers, aligned, aligned_y, bias, blocks, y_bf16;
} vapp_shape_args;

// vapp_product is a product of a list: shapes for unit, 2·unit, ... most rows.
typedef struct {
  const vapp_blas *blas;
  void *desc;
  vapp_shape **shapes;
  CUdeviceptr w, x, y, workspace;
  size_t bytes;  // of the workspace
  int32_t unit, most, rows_at;  // rows_at: offset of the row count in a launch's arguments
} vapp_product;

// vapp_blas_load opens the library in a file. On failure it returns −1, and why is the reason.
int vapp_blas_load(vapp_blas **out, const char *name, char *why, size_t size);
// vapp_blas_unload closes a library that was not used.
void vapp_blas_unload(vapp_blas *b);
size_t vapp_blas_version(const vapp_blas *b);
const char *vapp_blas_status(const vapp_blas *b, int status);
int vapp_blas_create(vapp_blas *b);
int vapp_blas_close(vapp_blas *b);
// vapp_blas_desc makes the descriptor of a product with a float32 bias [out] and scales of W
// [out] and X [rows]; each is 0 if absent. Both scales are needed for E4M3, which excludes a
// bias. With blocks 1, scales are of 128 × 128 blocks of W, [out/128, in/128 rounded up to a
// multiple of 4], and of 128 inputs in a row of X, [in/128, rows].
int vapp_blas_desc(const vapp_blas *b, CUdeviceptr bias, CUdeviceptr w_scales, CUdeviceptr x_scales, int blocks, void **out);
void vapp_blas_free_desc(const vapp_blas *b, void *desc);
// VAPP_ALGORITHMS is how many algorithms the library is asked for, VAPP_ALGORITHM_BYTES the size of one.
#define VAPP_ALGORITHMS 8
#define VAPP_ALGORITHM_BYTES 64
// vapp_blas_shape asks for the algorithms of a shape; found is 0 if there is none. The first one is
// used.
int vapp_blas_shape(const vapp_blas *b, const vapp_shape_args *a, void *desc, vapp_shape **out, int *found);
void vapp_blas_free_shape(const vapp_blas *b, vapp_shape *s);
// vapp_shape_count returns how many algorithms there are, vapp_shape_offered the bytes of one.
int vapp_shape_count(const vapp_shape *s);
const void *vapp_shape_offered(const vapp_shape *s, int i);
// vapp_shape_use makes products of the shape run by algorithm i.
void vapp_shape_use(vapp_shape *s, int i);
// vapp_shape_run runs one product by algorithm i.
int vapp_shape_run(const vapp_blas *b, const vapp_shape *s, int i, void *desc, CUdeviceptr w, CUdeviceptr x, CUdeviceptr y, CUdeviceptr workspace,
                   size_t bytes, CUstream stream);
int vapp_product_run(const vapp_product *p, int32_t rows, CUstream stream);
// vapp_product_loaded returns 0 if the library has not run the product with this number of
// rows yet.
int vapp_product_loaded(const vapp_product *p, int32_t rows);

// Added to the library's statuses in a list's errors; CUresults are smaller.
#define VAPP_BLAS_STATUS 100000

// Added to a vapp_call's statuses in a list's errors.
#define VAPP_CALL_STATUS 200000

// vapp_call launches work of another library on a stream. It returns 0 or a status.
typedef int (*vapp_call)(void *data, const void *args, CUstream stream);

typedef struct {
  CUfunction function;
  const vapp_product *product;  // instead of a kernel; else 0
  vapp_call call;               // instead of both; else 0
  void *data;                   // of call
  void *args;                   // in the list's memory
  uint32_t grid[3], block[3], shared;
  uint32_t first, end;  // range in the list's symbols
} vapp_launch;

typedef struct {
  vapp_launch *launches;
  vapp_symbol *symbols;
  int dependent;  // kernels behind kernels may begin before those have ended
} vapp_list;

// vapp_list_run sets the numbers of launches [from, to) and launches them. The first of them, and
// one behind what is no kernel of the list, begins when all before it has ended. On error, failed
// is the launch.
CUresult vapp_list_run(vapp_list *l, int from, int to, const int32_t *bound, CUstream stream, int *failed);

// vapp_list_load runs the products of launches [from, to) that have not run yet. The library
// loads a kernel onto the device when it first calls it, and a capture may not allow that.
CUresult vapp_list_load(vapp_list *l, int from, int to, const int32_t *bound, CUstream stream, int *failed);

// vapp_rows_to_device copies the first width bytes of rows that are pitch bytes apart on both
// sides.
CUresult vapp_rows_to_device(CUdeviceptr to, const void *from, size_t width, size_t pitch, size_t rows, CUstream stream);

// vapp_free_memory returns a device's free bytes from NVIDIA's management library, without a
// context; −1 if the library is missing or does not know the device.
int64_t vapp_free_memory(const char *uuid);

// vapp_wait waits at most limit nanoseconds for an event, or for a stream's work if the event
// is 0; then it returns CUDA_ERROR_NOT_READY. The driver's own waits never end if a device
// hangs.
CUresult vapp_wait(CUevent event, CUstream stream, int64_t limit);
