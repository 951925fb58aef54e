// Devices, settings, the context.
#include "driver.h"

#include <cstdlib>
#include <unistd.h>

using namespace driver;

namespace driver {

Settings settings;
Context context;
std::recursive_mutex everything;
// The opening of the context that is current on this thread; 0: none. A thread with an earlier
// opening has no context.
thread_local long current_here = 0;
long opening = 0;

namespace {

struct Fault {
  std::string call;
  long left;
  Result code;  // kSuccess: the call never comes back
};
std::vector<Fault> faults;
std::map<std::string, long> counts;

const struct {
  const char *name;
  long Settings::*at;
} names[] = {
    {"old", &Settings::old},         {"devices", &Settings::devices}, {"driver", &Settings::version}, {"sms", &Settings::sms},       {"memory", &Settings::memory},
    {"held", &Settings::held},       {"context", &Settings::context}, {"graph", &Settings::graph},   {"shared", &Settings::shared},
    {"mode", &Settings::mode},       {"ecc", &Settings::ecc},         {"threads", &Settings::threads}, {"schedule", &Settings::schedule},
    {"e4m3", &Settings::e4m3},       {"stack", &Settings::stack},     {"limit", &Settings::limit},
};

// number parses all of a text as a number.
bool number(const std::string &text, long *to) {
  char *end = nullptr;
  *to = strtol(text.c_str(), &end, 10);
  return end != text.c_str() && *end == 0;
}

// set_one takes name=value. fault is call:which:code: from the which-th call on, that call
// fails with code. The call of a kernel that runs is "kernel", or the kernel's name; with code
// 600 it never ends. hang is call:which: that call never returns.
bool set_one(const std::string &name, const std::string &value) {
  if (name == "capability") {
    char more;
    return sscanf(value.c_str(), "%ld.%ld%c", &settings.major, &settings.minor, &more) == 2;
  }
  if (name == "name") {
    settings.name = value;
    return !value.empty();
  }
  if (name == "order") {
    settings.lazy = value == "lazy";
    return value == "lazy" || value == "eager";
  }
  if (name == "blocks") {
    settings.idle = value == "none";
    return settings.idle;
  }
  if (name == "fault" || name == "hang") {
    size_t a = value.find(':'), b = name == "hang" ? value.size() : value.rfind(':');
    long which = 0, code = kSuccess;
    if (a == std::string::npos || a >= b || !number(value.substr(a + 1, b - a - 1), &which)) return false;
    if (name == "fault" && (!number(value.substr(b + 1), &code) || code <= 0)) return false;
    faults.push_back({value.substr(0, a), which, Result(code)});
    return which > 0;
  }
  if (name == "reset") {
    settings = Settings();
    faults.clear();
    if (context.hung) {
      context.users = 0;
      release_all();
    }
    return true;
  }
  for (auto &n : names)
    if (name == n.name) return number(value, &(settings.*n.at));
  return false;
}

const std::map<int, const char *> results = {
    {0, "CUDA_SUCCESS"},
    {1, "CUDA_ERROR_INVALID_VALUE"},
    {2, "CUDA_ERROR_OUT_OF_MEMORY"},
    {46, "CUDA_ERROR_DEVICE_UNAVAILABLE"},
    {100, "CUDA_ERROR_NO_DEVICE"},
    {101, "CUDA_ERROR_INVALID_DEVICE"},
    {200, "CUDA_ERROR_INVALID_IMAGE"},
    {201, "CUDA_ERROR_INVALID_CONTEXT"},
    {209, "CUDA_ERROR_NO_BINARY_FOR_GPU"},
    {214, "CUDA_ERROR_ECC_UNCORRECTABLE"},
    {400, "CUDA_ERROR_INVALID_HANDLE"},
    {500, "CUDA_ERROR_NOT_FOUND"},
    {600, "CUDA_ERROR_NOT_READY"},
    {700, "CUDA_ERROR_ILLEGAL_ADDRESS"},
    {701, "CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES"},
    {709, "CUDA_ERROR_CONTEXT_IS_DESTROYED"},
    {719, "CUDA_ERROR_LAUNCH_FAILED"},
    {801, "CUDA_ERROR_NOT_SUPPORTED"},
    {803, "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH"},
    {900, "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED"},
    {901, "CUDA_ERROR_STREAM_CAPTURE_INVALIDATED"},
    {902, "CUDA_ERROR_STREAM_CAPTURE_MERGE"},
    {903, "CUDA_ERROR_STREAM_CAPTURE_UNMATCHED"},
    {904, "CUDA_ERROR_STREAM_CAPTURE_UNJOINED"},
    {905, "CUDA_ERROR_STREAM_CAPTURE_ISOLATION"},
    {907, "CUDA_ERROR_CAPTURED_EVENT"},
    {908, "CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD"},
    {999, "CUDA_ERROR_UNKNOWN"},
};

}  // namespace

bool set(const char *text, std::string *wrong) {
  std::string s = text;
  for (size_t at = 0; at < s.size();) {
    size_t end = std::min(s.find(',', at), s.size()), is = std::min(s.find('=', at), end);
    std::string name = s.substr(at, is - at), value = is < end ? s.substr(is + 1, end - is - 1) : "";
    if ((is == end) != (name == "reset") || !set_one(name, value)) {
      *wrong = s.substr(at, end - at);
      return false;
    }
    at = end + 1;
  }
  return true;
}

Result called(const char *name, long times) {
  counts[name] += times;
  for (size_t i = 0; i < faults.size(); i++)
    if (faults[i].call == name && --faults[i].left == 0) {
      Result code = faults[i].code;
      faults.erase(faults.begin() + long(i));
      if (code == kSuccess) {
        fprintf(stderr, "emulated driver: %s hangs\n", name);
        for (;;) pause();
      }
      return code;
    }
  return kSuccess;
}

Result reserve_stack(long n) {
  if (n <= context.limit) return kSuccess;
  const long granule = 2 << 20, threads = settings.minor == 0 && settings.major < 11 ? 2048 : 1536;
  long more = ((n - settings.limit) * threads * settings.sms + granule - 1) / granule * granule - context.stacks;
  if (more > settings.memory - settings.held - context.taken) return kOutOfMemory;
  context.taken += more;
  context.stacks += more;
  context.limit = n;
  return kSuccess;
}

void forever(const char *call) {
  if (!context.hung) return;
  fprintf(stderr, "emulated driver: %s would wait for ever: a kernel hangs\n", call);
  abort();
}

Result usable() {
  if (context.sticky) return context.sticky;
  return current_here == opening && context.users > 0 ? kSuccess : kInvalidContext;
}

}  // namespace driver

// vapp_emulated exists only in the emulated driver; it takes settings.
API int vapp_emulated(const char *text) {
  std::lock_guard<std::recursive_mutex> lock(everything);
  std::string wrong;
  return set(text, &wrong) ? 0 : 1;
}

// vapp_emulated_count returns how often a call was made; "kernel" and kernels' names count
// kernels that ran. For device memory, "bytes" is the requested bytes of allocations that are
// not freed, "taken" is what they take including contexts and graphs; "pinned" is bytes of host
// memory; "prefetch" is the pieces that dependent launches prefetched, "dependent" those launches; "stacks" is device memory taken for kernels' stacks, and "grown" the launches that took some.
API long vapp_emulated_count(const char *name) {
  std::lock_guard<std::recursive_mutex> lock(everything);
  std::string s = name;
  if (s == "taken") return context.taken;
  if (s == "stacks") return context.stacks;
  if (s == "bytes") {
    long n = 0;
    for (auto &m : context.memory) n += long(m.second.bytes);
    return n;
  }
  if (s == "pinned") {
    long n = 0;
    for (auto &m : context.pinned) n += long(m.second);
    return n;
  }
  return counts[s];
}

// vapp_emulated_lacks reports whether a driver of this version is too old for a function.
API int vapp_emulated_lacks(const char *name) {
  std::string s = name;
  if (s == "cuFuncLoad" || s == "cuFuncGetParamInfo") return settings.version < 12040;
  if (s == "cuLaunchKernelEx") return settings.version < 11080;
  return s == "cuEventElapsedTime_v2" && settings.version < 12080;
}

API int cuInit(unsigned) {
  const char *text = getenv("VAPP_EMULATED");
  std::string wrong;
  if (text != nullptr && !set(text, &wrong)) {
    fprintf(stderr, "emulated driver: VAPP_EMULATED: \"%s\" is no setting\n", wrong.c_str());
    return kInvalidValue;
  }
  CALL("cuInit");
  return kSuccess;
}
API int cuDriverGetVersion(int *v) {
  *v = int(settings.version);
  return kSuccess;
}
API int cuGetErrorName(int code, const char **s) {
  auto r = results.find(code);
  *s = r == results.end() ? nullptr : r->second;
  return *s ? kSuccess : kInvalidValue;
}
API int cuDeviceGetCount(int *n) {
  CALL("cuDeviceGetCount");
  *n = int(settings.devices);
  return kSuccess;
}
API int cuDeviceGet(int *d, int i) {
  *d = i;
  return i >= 0 && i < settings.devices ? kSuccess : kInvalidDevice;
}
API int cuDeviceGetName(char *to, int n, int) {
  snprintf(to, size_t(n), "%s", settings.name.c_str());
  return kSuccess;
}
API int cuDeviceGetUuid_v2(unsigned char *to, int d) {
  memset(to, 0, 16);
  to[15] = (unsigned char)d;
  return kSuccess;
}
API int cuDeviceTotalMem_v2(size_t *n, int) {
  *n = size_t(settings.memory);
  return kSuccess;
}
API int cuDeviceGetAttribute(int *v, int attribute, int device) {
  switch (attribute) {
    case 1: *v = 1024; break;                          // threads of a block
    case 8: *v = 48 << 10; break;                      // shared memory of a block
    case 10: *v = 32; break;                           // threads of a warp
    case 16: *v = int(settings.sms); break;            // multiprocessors
    case 18: *v = 0; break;                            // integrated
    case 19: *v = 1; break;                            // maps host memory
    case 20: *v = int(settings.mode); break;           // compute mode
    case 32: *v = int(settings.ecc); break;
    case 36: *v = 1000000; break;                      // memory clock, kHz
    case 37: *v = 512; break;                          // memory bus, bits
    case 38: *v = 32 << 20; break;                     // second cache
    case 75: *v = device < settings.old ? 7 : int(settings.major); break;
    case 76: *v = device < settings.old ? 5 : int(settings.minor); break;
    case 81: *v = int(settings.shared) + 1024; break;  // shared memory of a multiprocessor
    case 97: *v = int(settings.shared); break;         // of a block that asks for it
    default: return kInvalidValue;
  }
  return kSuccess;
}

API int cuDevicePrimaryCtxSetFlags_v2(int, unsigned) { return kSuccess; }
API int cuDevicePrimaryCtxRetain(void **c, int d) {
  CALL("cuDevicePrimaryCtxRetain");
  if (d < 0 || d >= settings.devices) return kInvalidDevice;
  if (settings.mode == 2) return kUnavailable;
  if (context.sticky) return context.sticky;
  if (context.users == 0) {
    if (settings.memory - settings.held < settings.context) return kOutOfMemory;
    context.taken = settings.context;
    context.limit = settings.limit;
    context.stacks = 0;
    opening++;
  }
  context.users++;
  *c = &context;
  return kSuccess;
}
API int cuDevicePrimaryCtxRelease_v2(int) {
  CALL("cuDevicePrimaryCtxRelease");
  if (context.users == 0) return kInvalidContext;
  forever("cuDevicePrimaryCtxRelease");
  if (--context.users == 0) release_all();
  return kSuccess;
}
API int cuCtxSetCurrent(void *c) {
  std::lock_guard<std::recursive_mutex> lock(everything);
  if (c != nullptr && (c != &context || context.users == 0)) return kInvalidContext;
  current_here = c != nullptr ? opening : 0;
  return kSuccess;
}
API int cuCtxGetCurrent(void **c) {
  *c = usable() == kInvalidContext ? nullptr : &context;
  return kSuccess;
}
// Limit 0 is the stack of a thread.
API int cuCtxGetLimit(size_t *v, int limit) {
  if (Result r = usable()) return r;
  *v = size_t(context.limit);
  return limit == 0 ? kSuccess : kInvalidValue;
}
API int cuCtxSetLimit(int limit, size_t v) {
  CALL("cuCtxSetLimit");
  if (Result r = unsafe()) return r;
  return limit == 0 ? reserve_stack(long(v)) : kInvalidValue;
}
API int cuCtxSynchronize() {
  CALL("cuCtxSynchronize");
  if (Result r = unsafe()) return r;
  forever("cuCtxSynchronize");
  finish_all();
  return context.sticky;
}
