//go:build linux && cgo && cuda

// The driver's functions as linked into the binary. At its first call, each looks up the real
// function in libcuda.so.1, or in the library in VAPP_LIBCUDA. So the binary starts, plans
// and serves on machines without a driver. Only cuInit always succeeds without it:
// gorgonia.org/cu calls cuInit before main and ends the process if it fails. vapp_cuda_status
// returns the result of the library's cuInit.
#include "native.h"
#include <dlfcn.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

static void *library;
static CUresult status = CUDA_ERROR_NO_DEVICE;
static char missing[512];
static pthread_once_t opened = PTHREAD_ONCE_INIT;

static void open_library(void) {
  const char *named = getenv("VAPP_LIBCUDA");
  library = dlopen(named && *named ? named : "libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  if (!library) {
    const char *why = dlerror();
    strncpy(missing, why ? why : "it cannot be loaded", sizeof missing - 1);
    return;
  }
  CUresult (*init)(unsigned int) = (CUresult(*)(unsigned int))dlsym(library, "cuInit");
  if (!init) {
    strcpy(missing, "the library named as CUDA's driver has no cuInit");
    dlclose(library);
    library = 0;
    return;
  }
  status = init(0);
}

int vapp_cuda_status(void) {
  pthread_once(&opened, open_library);
  return status;
}

const char *vapp_cuda_missing(void) {
  pthread_once(&opened, open_library);
  return missing;
}

// find returns a function of the library, or 0. An emulated driver has all functions; it names
// those that a driver of its version lacks.
static void *find(const char *name) {
  int (*lacks)(const char *) = (int (*)(const char *))dlsym(library, "vapp_emulated_lacks");
  return lacks && lacks(name) ? 0 : dlsym(library, name);
}

void *vapp_cuda_entry(const char *name) {
  pthread_once(&opened, open_library);
  return library ? dlsym(library, name) : 0;
}

__attribute__((cold, noinline)) static CUresult resolve(void **slot, const char *name) {
  pthread_once(&opened, open_library);
  // A driver whose cuInit failed can still return error names.
  if (status != CUDA_SUCCESS && !(library && strcmp(name, "cuGetErrorName") == 0)) return status;
  void *p = find(name);
  // Drivers before CUDA 12.8 have it with the same parameters under its older name.
  if (!p && strcmp(name, "cuEventElapsedTime_v2") == 0) p = find("cuEventElapsedTime");
  if (!p) return CUDA_ERROR_NOT_FOUND;
  __atomic_store_n(slot, p, __ATOMIC_RELEASE);
  return CUDA_SUCCESS;
}

CUresult CUDAAPI cuInit(unsigned int flags) {
  (void)flags;
  return CUDA_SUCCESS;
}

// cuda.h may define a function's name as a newer version of it; look up the version that was
// compiled against.
#define TEXT_(x) #x
#define TEXT(x) TEXT_(x)
#define ENTRY(name, parameters, arguments)                                \
  static void *at_##name;                                                 \
  CUresult CUDAAPI name parameters {                                      \
    void *real_ = __atomic_load_n(&at_##name, __ATOMIC_ACQUIRE);          \
    if (__builtin_expect(!real_, 0)) {                                    \
      CUresult r = resolve(&at_##name, TEXT(name));                       \
      if (r != CUDA_SUCCESS) return r;                                    \
      real_ = at_##name;                                                  \
    }                                                                     \
    return ((CUresult(CUDAAPI *) parameters)real_)arguments;              \
  }
#include "entries.h"
