// Memory of the device and pinned memory of the host.
#include "driver.h"

using namespace driver;

namespace driver {

namespace {

constexpr size_t kGranule = 2 << 20, kPage = 4096, kAlign = 256;
constexpr unsigned char kMark = 0xa5;

size_t up(size_t n, size_t to) { return (n + to - 1) / to * to; }

// tail returns the bytes between the end of an allocation and the inaccessible page.
size_t tail(uint64_t at, const Allocation &a) { return size_t(a.map + a.mapped - kPage - (char *)at) - a.bytes; }

}  // namespace

bool inside(uint64_t at, size_t n) {
  for (bool device : {true, false}) {
    uint64_t first = 0;
    size_t size = 0;
    if (device) {
      auto m = context.memory.upper_bound(at);
      if (m == context.memory.begin()) continue;
      --m;
      first = m->first;
      size = m->second.bytes;
    } else {
      auto m = context.pinned.upper_bound(at);
      if (m == context.pinned.begin()) continue;
      --m;
      first = m->first;
      size = m->second;
    }
    if (at - first <= size && n <= size - (at - first)) return true;
  }
  return false;
}

bool is_pinned(const void *p, size_t n) {
  auto m = context.pinned.upper_bound(uint64_t(p));
  if (m == context.pinned.begin()) return false;
  --m;
  return uint64_t(p) - m->first <= m->second && n <= m->second - (uint64_t(p) - m->first);
}

bool guards() {
  for (auto &[at, a] : context.memory) {
    const unsigned char *end = (const unsigned char *)at + a.bytes;
    for (size_t i = 0, n = tail(at, a); i < n; i++)
      if (end[i] != kMark) return false;
  }
  return true;
}

void release_all() {
  for (auto &[at, a] : context.memory) munmap(a.map, a.mapped);
  for (auto &[at, n] : context.pinned) free((void *)at);
  context.memory.clear();
  context.pinned.clear();
  context.taken = 0;
  context.sticky = kSuccess;
  context.hung = false;
  for (Stream *s : streams) {
    s->queue.clear();
    s->head = 0;
  }
}

}  // namespace driver

API int cuMemGetInfo_v2(size_t *free_bytes, size_t *total) {
  CALL("cuMemGetInfo");
  if (Result r = usable()) return r;
  *total = size_t(settings.memory);
  *free_bytes = size_t(std::max(0l, settings.memory - settings.held - context.taken));
  return kSuccess;
}
// New memory is 0xff, NaN in every format; in large allocations only the beginning.
API int cuMemAlloc_v2(uint64_t *p, size_t n) {
  CALL("cuMemAlloc");
  if (Result r = unsafe()) return r;
  if (n == 0) return kInvalidValue;
  long taken = long(up(n, kGranule));
  if (taken < 0 || taken > settings.memory - settings.held - context.taken) return kOutOfMemory;
  size_t mapped = up(n, kPage) + 2 * kPage;
  char *map = (char *)mmap(nullptr, mapped, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (map == MAP_FAILED || mprotect(map + kPage, mapped - 2 * kPage, PROT_READ | PROT_WRITE) != 0) return kOutOfMemory;
  Allocation a{n, size_t(taken), map, mapped};
  *p = uint64_t(map + mapped - kPage - up(n, kAlign));
  memset((void *)*p, 0xff, std::min(n, size_t(64 << 20)));
  memset((char *)*p + n, kMark, tail(*p, a));
  context.memory[*p] = a;
  context.taken += taken;
  return kSuccess;
}
API int cuMemFree_v2(uint64_t p) {
  CALL("cuMemFree");
  if (Result r = unsafe()) return r;
  forever("cuMemFree");
  finish_all();
  auto m = context.memory.find(p);
  if (m == context.memory.end()) return kInvalidValue;
  munmap(m->second.map, m->second.mapped);
  context.taken -= long(m->second.taken);
  context.memory.erase(m);
  return kSuccess;
}
API int cuMemHostAlloc(void **p, size_t n, unsigned) {
  CALL("cuMemHostAlloc");
  if (Result r = unsafe()) return r;
  if (n == 0 || posix_memalign(p, kPage, n) != 0) return n == 0 ? kInvalidValue : kOutOfMemory;
  memset(*p, 0xff, n);
  context.pinned[uint64_t(*p)] = n;
  return kSuccess;
}
API int cuMemHostGetDevicePointer_v2(uint64_t *d, void *p, unsigned) {
  *d = uint64_t(p);
  return is_pinned(p, 0) ? kSuccess : kInvalidValue;
}
API int cuMemFreeHost(void *p) {
  CALL("cuMemFreeHost");
  if (Result r = unsafe()) return r;
  forever("cuMemFreeHost");
  finish_all();
  if (!context.pinned.erase(uint64_t(p))) return kInvalidValue;
  free(p);
  return kSuccess;
}

namespace {

// copy checks device addresses. Host memory that is not pinned is read immediately.
int copy(void *stream, uint64_t to, uint64_t from, size_t n, bool to_device, bool from_device) {
  if (Result r = usable()) return r;
  if (to_device && !inside(to, n)) return kInvalidValue;
  if (from_device && !inside(from, n)) return kInvalidValue;
  if (n == 0) return kSuccess;
  Work w;
  w.kind = Work::kCopy;
  w.to = to;
  w.from = from;
  w.n = n;
  w.to_device = to_device;
  w.from_device = from_device;
  bool pinned = (from_device || is_pinned((void *)from, n)) && (to_device || is_pinned((void *)to, n));
  Stream *s = stream_of(stream);
  if (!pinned && s->capture != nullptr) {
    s->origin->broken = true;
    return kCaptureUnsupported;
  }
  if (!pinned && !from_device) w.staged = std::make_shared<std::vector<char>>((char *)from, (char *)from + n);
  Result r = give(stream, w);
  if (!pinned) forever("a copy of memory that is not pinned");
  if (r == kSuccess && !pinned && !to_device) r = complete(s);
  return r;
}

struct Rows {
  size_t from_x, from_y;
  int from_kind;
  const void *from;
  uint64_t from_device;
  void *from_array;
  size_t from_pitch, to_x, to_y;
  int to_kind;
  void *to_host;
  uint64_t to;
  void *to_array;
  size_t to_pitch, width, rows;
};

}  // namespace

API int cuMemcpyHtoDAsync_v2(uint64_t to, const void *from, size_t n, void *stream) {
  CALL("cuMemcpyHtoDAsync");
  return copy(stream, to, uint64_t(from), n, true, false);
}
// A copy of rows (CUDA_MEMCPY2D), only from pinned host memory to the device.
API int cuMemcpy2DAsync_v2(const Rows *c, void *stream) {
  CALL("cuMemcpy2DAsync");
  if (c->from_kind != 1 || c->to_kind != 2 || c->width > c->from_pitch || c->width > c->to_pitch) return kInvalidValue;
  if (c->rows > 0 && !is_pinned(c->from, c->from_pitch * (c->rows - 1) + c->width)) return kInvalidValue;
  for (size_t r = 0; r < c->rows; r++)
    if (int e = copy(stream, c->to + r * c->to_pitch, uint64_t(c->from) + r * c->from_pitch, c->width, true, false)) return e;
  return kSuccess;
}
API int cuMemcpyDtoHAsync_v2(void *to, uint64_t from, size_t n, void *stream) {
  CALL("cuMemcpyDtoHAsync");
  return copy(stream, uint64_t(to), from, n, false, true);
}
API int cuMemcpyDtoDAsync_v2(uint64_t to, uint64_t from, size_t n, void *stream) {
  CALL("cuMemcpyDtoDAsync");
  return copy(stream, to, from, n, true, true);
}
API int cuMemsetD8Async(uint64_t to, unsigned char byte, size_t n, void *stream) {
  CALL("cuMemsetD8Async");
  if (Result r = usable()) return r;
  if (!inside(to, n)) return kInvalidValue;
  Work w;
  w.kind = Work::kFill;
  w.to = to;
  w.n = n;
  w.byte = byte;
  return n == 0 ? kSuccess : give(stream, w);
}

// The calls of NVIDIA's management library that vapp uses.
API int nvmlInit_v2() {
  std::lock_guard<std::recursive_mutex> lock(everything);
  return called("nvmlInit") == kSuccess ? 0 : 1;
}
API int nvmlShutdown() { return 0; }
API int nvmlDeviceGetHandleByUUID(const char *uuid, void **device) {
  *device = &context;
  return strncmp(uuid, "GPU-", 4) == 0 ? 0 : 6;
}
API int nvmlDeviceGetMemoryInfo(void *, unsigned long long *of) {
  std::lock_guard<std::recursive_mutex> lock(everything);
  of[0] = (unsigned long long)settings.memory;
  of[1] = (unsigned long long)std::max(0l, settings.memory - settings.held - context.taken);
  of[2] = of[0] - of[1];
  return 0;
}
