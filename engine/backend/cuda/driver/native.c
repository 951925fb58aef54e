//go:build linux && cgo && cuda

#include "native.h"
#include <sys/prctl.h>
#include <time.h>

// patch sets the launch's numbers. It returns 0 for a launch without blocks and −1 for a
// number out of range.
static inline int patch(vapp_launch *l, const vapp_symbol *symbols, const int32_t *bound) {
  for (uint32_t i = l->first; i < l->end; i++) {
    const vapp_symbol *s = symbols + i;
    int64_t v = (int64_t)bound[s->of] * s->times;
    if (s->over != 1) v = (v + s->over - 1) / s->over;
    v += s->plus;
    if (v < 0 || v > INT32_MAX) return -1;
    if (s->at >= 0)
      *(int32_t *)((char *)l->args + s->at) = (int32_t)v;
    else
      l->grid[s->dim] = (uint32_t)v;
  }
  return l->grid[0] && l->grid[1] && l->grid[2];
}

// rows returns the rows of a launch that is a product.
static inline int32_t rows(const vapp_launch *l) { return *(const int32_t *)((const char *)l->args + l->product->rows_at); }

static inline CUresult multiply(const vapp_launch *l, CUstream stream) {
  int status = vapp_product_run(l->product, rows(l), stream);
  return status ? (CUresult)(VAPP_BLAS_STATUS + status) : CUDA_SUCCESS;
}

// launch launches a kernel. A dependent one may begin while the kernel before it runs.
static inline CUresult launch(vapp_launch *l, CUstream stream, int dependent) {
  if (!dependent)
    return cuLaunchKernel(l->function, l->grid[0], l->grid[1], l->grid[2], l->block[0], l->block[1], l->block[2], l->shared,
                          stream, &l->args, 0);
  CUlaunchAttribute early = {.id = CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION,
                             .value.programmaticStreamSerializationAllowed = 1};
  CUlaunchConfig config = {
      .gridDimX = l->grid[0], .gridDimY = l->grid[1], .gridDimZ = l->grid[2],
      .blockDimX = l->block[0], .blockDimY = l->block[1], .blockDimZ = l->block[2],
      .sharedMemBytes = l->shared, .hStream = stream, .attrs = &early, .numAttrs = 1,
  };
  return cuLaunchKernelEx(&config, l->function, &l->args, 0);
}

CUresult vapp_list_load(vapp_list *list, int from, int to, const int32_t *bound, CUstream stream, int *failed) {
  for (int i = from; i < to; i++) {
    vapp_launch *l = list->launches + i;
    if (!l->product || patch(l, list->symbols, bound) <= 0 || vapp_product_loaded(l->product, rows(l))) continue;
    CUresult r = multiply(l, stream);
    if (r != CUDA_SUCCESS) {
      *failed = i;
      return r;
    }
  }
  return CUDA_SUCCESS;
}

CUresult vapp_list_run(vapp_list *list, int from, int to, const int32_t *bound, CUstream stream, int *failed) {
  int dependent = 0;
  for (int i = from; i < to; i++) {
    vapp_launch *l = list->launches + i;
    int blocks = patch(l, list->symbols, bound);
    if (blocks == 0) continue;
    CUresult r = CUDA_ERROR_INVALID_VALUE;
    if (blocks > 0 && l->product) {
      r = multiply(l, stream);
    } else if (blocks > 0 && l->call) {
      int status = l->call(l->data, l->args, stream);
      r = status ? (CUresult)(VAPP_CALL_STATUS + status) : CUDA_SUCCESS;
    } else if (blocks > 0) {
      r = launch(l, stream, dependent);
    }
    dependent = list->dependent && !l->product && !l->call;
    if (r != CUDA_SUCCESS) {
      *failed = i;
      return r;
    }
  }
  return CUDA_SUCCESS;
}

CUresult vapp_rows_to_device(CUdeviceptr to, const void *from, size_t width, size_t pitch, size_t rows, CUstream stream) {
  CUDA_MEMCPY2D c = {
      .srcMemoryType = CU_MEMORYTYPE_HOST, .srcHost = from, .srcPitch = pitch,
      .dstMemoryType = CU_MEMORYTYPE_DEVICE, .dstDevice = to, .dstPitch = pitch,
      .WidthInBytes = width, .Height = rows,
  };
  return cuMemcpy2DAsync(&c, stream);
}

static int64_t now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return t.tv_sec * 1000000000ll + t.tv_nsec;
}

CUresult vapp_wait(CUevent event, CUstream stream, int64_t limit) {
  const int64_t spin = 200000, nap = 10000;
  static _Thread_local int exact;
  int64_t start = now();
  for (;;) {
    CUresult r = event ? cuEventQuery(event) : cuStreamQuery(stream);
    if (r != CUDA_ERROR_NOT_READY) return r;
    int64_t waited = now() - start;
    if (waited > limit) return r;
    if (waited < spin) continue;
    if (!exact) exact = prctl(PR_SET_TIMERSLACK, 1000ul) == 0;  // otherwise a sleep takes 50 µs longer
    nanosleep(&(struct timespec){0, nap}, 0);
  }
}
