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

typedef struct {
  CUfunction function;
  void *args;  // in the list's own memory
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

// vapp_rows_to_device copies the first width bytes of rows that begin pitch bytes apart, there as here.
CUresult vapp_rows_to_device(CUdeviceptr to, const void *from, size_t width, size_t pitch, size_t rows, CUstream stream);

// vapp_free_memory is what NVIDIA's management library says is free of a device, in bytes, without a
// context; -1: there is no such library, or it does not know the device.
int64_t vapp_free_memory(const char *uuid);

// vapp_wait waits for an event, or, where that is 0, for a stream's work, for so many nanoseconds
// at most: CUDA_ERROR_NOT_READY. The driver's own waits have no end where a device has hung.
CUresult vapp_wait(CUevent event, CUstream stream, int64_t limit);
