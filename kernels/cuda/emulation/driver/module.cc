// Modules, functions, launches.
#include "driver.h"

using namespace driver;

namespace {

std::map<std::string, Function> &functions() {
  static std::map<std::string, Function> all;
  if (all.empty())
    for (const emulation::Kernel &k : emulation::kernels()) all[k.name] = Function{&k};
  return all;
}

char module;

}  // namespace

// cuModuleLoadData accepts any image: the kernels are in this library, for devices from 8.0 on.
API int cuModuleLoadData(void **m, const void *image) {
  CALL("cuModuleLoadData");
  if (Result r = unsafe()) return r;
  if (image == nullptr) return kInvalidValue;
  if (settings.major < 8) return kNoBinary;
  for (auto &f : functions()) f.second.shared_max = 48 << 10;
  *m = &module;
  return kSuccess;
}
API int cuModuleUnload(void *m) { return m == &module ? kSuccess : kInvalidHandle; }
API int cuModuleGetFunction(void **f, void *m, const char *name) {
  CALL("cuModuleGetFunction");
  if (Result r = usable()) return r;
  if (m != &module) return kInvalidHandle;
  auto found = functions().find(name);
  if (found == functions().end()) return kNotFound;
  *f = &found->second;
  return kSuccess;
}
API int cuFuncLoad(void *) {
  CALL("cuFuncLoad");
  return usable();
}
API int cuFuncGetParamInfo(void *f, size_t i, size_t *offset, size_t *size) {
  if (i > 0) return kInvalidValue;
  *offset = 0;
  *size = ((Function *)f)->kernel->args;
  return kSuccess;
}
API int cuFuncSetAttribute(void *f, int attribute, int v) {
  CALL("cuFuncSetAttribute");
  if (Result r = usable()) return r;
  if (attribute != 8 || v < 0 || v > settings.shared) return kInvalidValue;
  ((Function *)f)->shared_max = v;
  return kSuccess;
}
API int cuFuncGetAttribute(int *v, int attribute, void *f) {
  switch (attribute) {
    case 0: *v = ((Function *)f)->kernel->threads; break;
    case 1: *v = 0; break;   // static shared memory
    case 3: *v = int(settings.stack); break;  // local memory
    case 4: *v = 64; break;  // registers
    case 8: *v = ((Function *)f)->shared_max; break;
    default: return kInvalidValue;
  }
  return kSuccess;
}
API int cuOccupancyMaxActiveBlocksPerMultiprocessor(int *n, void *f, int threads, size_t shared) {
  if (threads < 1 || threads > ((Function *)f)->kernel->threads || long(shared) > settings.shared) return kInvalidValue;
  long by_shared = (settings.shared + 1024) / (long(shared) + 1024);
  *n = int(std::min({2048l / threads, by_shared, 32l}));
  return kSuccess;
}

namespace {

Result launch(void *f, const unsigned (&grid)[3], const unsigned (&block)[3], unsigned shared, void *stream, void **args, void **extra, bool dependent) {
  if (Result r = usable()) return r;
  Function *fn = (Function *)f;
  unsigned long threads = (unsigned long)block[0] * block[1] * block[2];
  if (grid[0] == 0 || grid[1] == 0 || grid[2] == 0 || grid[0] > 0x7fffffffu || grid[1] > 65535 || grid[2] > 65535) return kInvalidValue;
  if (threads == 0 || threads > 1024 || block[0] > 1024 || block[1] > 1024 || block[2] > 64) return kInvalidValue;
  if (long(threads) > fn->kernel->threads) return kOutOfResources;
  if (int(shared) > fn->shared_max || args == nullptr || extra != nullptr) return kInvalidValue;
  if (settings.stack > context.limit) {
    called("grown");
    if (Result r = reserve_stack(settings.stack)) return r;
  }
  Work w;
  w.kind = Work::kKernel;
  w.dependent = dependent;
  w.launch.function = fn;
  w.launch.grid = {grid[0], grid[1], grid[2]};
  w.launch.block = {block[0], block[1], block[2]};
  w.launch.shared = shared;
  w.launch.args = std::make_shared<std::vector<uint64_t>>((fn->kernel->args + 7) / 8);
  memcpy(w.launch.args->data(), args[0], fn->kernel->args);
  return give(stream, std::move(w));
}

}  // namespace

API int cuLaunchKernel(void *f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz, unsigned shared,
                       void *stream, void **args, void **extra) {
  if (settings.idle) return kSuccess;
  CALL("cuLaunchKernel");
  return launch(f, {gx, gy, gz}, {bx, by, bz}, shared, stream, args, extra, false);
}

// Config and Attribute have the layout of cuda.h.
struct Attribute {
  int id, pad;
  union {
    int v;
    char all[64];
  } value;
};
struct Config {
  unsigned grid[3], block[3], shared;
  void *stream;
  Attribute *attributes;
  unsigned count;
};

// A dependent launch, the only attribute that is known here, is refused where the kernels have no wait (their code for capabilities
// before 9.0, and PTX), on drivers without edges for it in graphs (before CUDA 12.3), and unless the item before is a
// kernel: a driver takes it then, but vapp does not ask for it.
API int cuLaunchKernelEx(const void *config, void *f, void **args, void **extra) {
  if (settings.idle) return kSuccess;
  CALL("cuLaunchKernel");
  const Config &c = *(const Config *)config;
  bool dependent = false;
  for (unsigned i = 0; i < c.count; i++) {
    if (c.attributes[i].id != 6) return kInvalidValue;
    dependent = c.attributes[i].value.v != 0;
  }
  if (dependent) {
    if ((settings.major != 9 && settings.major != 10 && settings.major != 12) || settings.version < 12030) return kNotSupported;
    if (!behind_kernel(c.stream)) return kInvalidValue;
    called("dependent");
  }
  return launch(f, c.grid, c.block, c.shared, c.stream, args, extra, dependent);
}
