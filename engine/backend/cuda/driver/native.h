// What the driver's Go lacks of gorgonia.org/cu: see native.go.
#pragma once
#include <cuda.h>
#include <stdint.h>

// The library: shim.c.
int vapp_cuda_status(void);           // what cuInit of the library said; CUDA_ERROR_NO_DEVICE where there is none
const char *vapp_cuda_missing(void);  // why there is no library, "" where there is one
void *vapp_cuda_entry(const char *name);

// vapp_symbol is a number of a launch that is known when the list runs:
// ceil(bound[of]·times / over) + plus.
typedef struct {
  int32_t of, at, dim, times, over, plus;
} vapp_symbol;

// A library of products, cuBLASLt, and what is asked of it: cublaslt.c. Statuses are the library's, 0
// where all is well.
typedef struct vapp_blas vapp_blas;
typedef struct vapp_shape vapp_shape;

// vapp_shape_args are a product's: Y [rows, out] of float32 = X [rows, in] · W [out, in], transposed, of
// numbers. Addresses are multiples of aligned, Y's of aligned_y.
enum { vapp_bf16, vapp_f16, vapp_e4m3 };
typedef struct {
  int64_t in, out, rows;
  uint64_t workspace;  // bytes, at most
  uint32_t numbers, aligned, aligned_y, bias, blocks;
} vapp_shape_args;

// vapp_product is a product of a list: shapes are those of unit, 2·unit, ... most rows.
typedef struct {
  const vapp_blas *blas;
  void *desc;
  vapp_shape **shapes;
  CUdeviceptr w, x, y, workspace;
  size_t bytes;  // of the workspace
  int32_t unit, most, rows_at;  // rows_at: where in a launch's arguments the rows are
} vapp_product;

// vapp_blas_load finds the library; −1: why says what is missing.
int vapp_blas_load(vapp_blas **out, char *why, size_t room);
size_t vapp_blas_version(const vapp_blas *b);
const char *vapp_blas_status(const vapp_blas *b, int status);
int vapp_blas_create(vapp_blas *b);
int vapp_blas_close(vapp_blas *b);
// vapp_blas_desc describes a product with a bias [out] of float32 and scales of W [out] and X [rows], each 0
// where there are none. Scales are E4M3's, both, and there is no bias with them. Where blocks is 1 they are of
// 128 by 128 of W, [out/128, in/128 up to a multiple of 4], and of 128 of a row of X, [in/128, rows].
int vapp_blas_desc(const vapp_blas *b, CUdeviceptr bias, CUdeviceptr w_scales, CUdeviceptr x_scales, int blocks, void **out);
void vapp_blas_free_desc(const vapp_blas *b, void *desc);
// vapp_blas_shape asks for the algorithm of a shape; found 0: there is none.
int vapp_blas_shape(const vapp_blas *b, const vapp_shape_args *a, void *desc, vapp_shape **out, int *found);
void vapp_blas_free_shape(const vapp_blas *b, vapp_shape *s);
int vapp_product_run(const vapp_product *p, int32_t rows, CUstream stream);
// vapp_product_loaded is 0 where the library has not multiplied so many rows yet.
int vapp_product_loaded(const vapp_product *p, int32_t rows);

// What a list's error is where the library's status is meant: CUresults are smaller.
#define VAPP_BLAS_STATUS 100000

typedef struct {
  CUfunction function;
  const vapp_product *product;  // in place of a kernel; else 0
  void *args;                   // in the list's own memory
  uint32_t grid[3], block[3], shared;
  uint32_t first, end;  // of the list's symbols
} vapp_launch;

typedef struct {
  vapp_launch *launches;
  vapp_symbol *symbols;
} vapp_list;

// vapp_list_run patches and launches launches [from, to). failed is the one that an
// error is of.
CUresult vapp_list_run(vapp_list *l, int from, int to, const int32_t *bound, CUstream stream, int *failed);

// vapp_list_load runs the products of launches [from, to) that have not run yet: a library brings a
// kernel to the device when it first calls it, which a capture need not allow.
CUresult vapp_list_load(vapp_list *l, int from, int to, const int32_t *bound, CUstream stream, int *failed);

// vapp_rows_to_device copies the first width bytes of rows that begin pitch bytes apart, there as here.
CUresult vapp_rows_to_device(CUdeviceptr to, const void *from, size_t width, size_t pitch, size_t rows, CUstream stream);

// vapp_free_memory is what NVIDIA's management library says is free of a device, in bytes, without a
// context; -1: there is no such library, or it does not know the device.
int64_t vapp_free_memory(const char *uuid);

// vapp_wait waits for an event, or, where that is 0, for a stream's work, for so many nanoseconds
// at most: CUDA_ERROR_NOT_READY. The driver's own waits have no end where a device has hung.
CUresult vapp_wait(CUevent event, CUstream stream, int64_t limit);
