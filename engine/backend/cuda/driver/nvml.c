//go:build linux && cgo && cuda

// Free device memory from NVIDIA's management library. The driver reports it only with a
// context, which takes half a gigabyte itself. An emulated driver contains these functions.
#include "native.h"
#include <dlfcn.h>

typedef struct {
  unsigned long long total, free, used;
} memory;

static void *entry(void *library, const char *name) { return library ? dlsym(library, name) : vapp_cuda_entry(name); }

int64_t vapp_free_memory(const char *uuid) {
  void *library = 0, *device = 0;
  if (!vapp_cuda_entry("vapp_emulated") && !(library = dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL))) return -1;
  int (*init)(void) = (int (*)(void))entry(library, "nvmlInit_v2");
  int (*end)(void) = (int (*)(void))entry(library, "nvmlShutdown");
  int (*find)(const char *, void **) = (int (*)(const char *, void **))entry(library, "nvmlDeviceGetHandleByUUID");
  int (*ask)(void *, memory *) = (int (*)(void *, memory *))entry(library, "nvmlDeviceGetMemoryInfo");
  memory m;
  int64_t out = -1;
  if (init && end && find && ask && init() == 0) {
    if (find(uuid, &device) == 0 && ask(device, &m) == 0) out = (int64_t)m.free;
    end();
  }
  if (library) dlclose(library);
  return out;
}
