// One block of CUDA threads on the host. The threads are fibers, each of which runs until it
// waits at a barrier or at a collective of its warp. A host thread runs one block after the
// other. Where a device's behaviour is undefined, the process ends with a line that gives the
// place; or only the block ends, if the caller asked for that. Such cases are threads of a
// block at different barriers, a thread that exits before a barrier, and lanes of a warp at
// different collectives.
#pragma once
#include "fiber.h"
#include "ready.h"

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <new>
#include <sys/mman.h>
#include <unistd.h>

namespace emulation {

constexpr size_t kShared = 228 << 10;  // of a multiprocessor of Hopper; a launch gives its own size

// Meeting is one collective of lanes: each brings the addresses of its input and its output,
// and the last lane to arrive computes all outputs.
struct Meeting {
  uint32_t mask = 0, arrived = 0;
  int op = 0;
  void *of[32];

  template <class T>
  T &lane(int l) const {
    return *(T *)of[l];
  }
};

// Products are a wgmma that was not waited for: see mma.cuh.
struct Products {
  const uint32_t *a[32];
  float *sums[32];
  uint64_t b;
  int add;
  void (*compute)(const Products &);
  unsigned group;
};

struct Warp {
  uint32_t live = 0, open = 0;  // lanes that have not exited; meetings in progress
  Meeting at[4];
  unsigned committed = 0;          // groups of products
  std::vector<Products> products;  // in order
};

// slots lists the addresses [from, to) of the fibers of the process; 0 for those of a thread
// that ended.
constexpr int kSlotRanges = 256;
inline std::atomic<uintptr_t> slot_ranges[kSlotRanges][2];

inline bool on_fiber(uintptr_t address) {
  for (auto &r : slot_ranges)
    if (address >= r[0] && address < r[1]) return true;
  return false;
}

// FiberPool is what a host thread keeps from block to block.
struct FiberPool {
  char *map = nullptr, *slots = nullptr;
  size_t mapped = 0;
  int fibers = 0, listed = -1;  // its index among slot_ranges
  unsigned char *shared = nullptr;
  Warp warps[kThreads / 32];
  Ready ready;

  ~FiberPool() {
    clear();
    if (shared) munmap(shared, kShared);
  }
  void clear() {
    if (listed >= 0) slot_ranges[listed][1] = slot_ranges[listed][0] = 0;
    for (int i = 0; i < fibers; i++) fiber(i)->~Fiber();
    if (map) munmap(map, mapped);
    map = nullptr;
    listed = -1;
    fibers = 0;
  }
  Fiber *fiber(int i) const { return fiber_at(uintptr_t(slots) + size_t(i) * kSlot); }
  bool grow(int threads);
};

// Block is the block that a host thread runs.
struct Block {
  uint3 index{};
  dim3 size, grid;
  unsigned char *shared = nullptr;
  size_t shared_bytes = 0;
  int threads = 0, left = 0, arrived = 0;
  int barrier_line = 0;
  const char *barrier_file = "";
  FiberPool *pool = nullptr;
  const char *kernel = "";
  void (*body)(const void *args) = nullptr;
  const void *args = nullptr;
  char *fault = nullptr;  // receives the reason from die, instead of ending the process
  size_t fault_size = 0;
  bool illegal = false;  // the reason is an invalid memory access
  int waited = 0;            // threads that waited for the kernel before
  bool prefetching = false;  // the block runs what comes before that wait
  uint64_t schedule = 0;
  int e4m3 = 0;  // bits that the matrix units keep of sums of products of E4M3; 0: all
#if defined(__x86_64__)
  void *caller = nullptr;
#else
  ucontext_t caller;
#endif
#if defined(__SANITIZE_ADDRESS__)
  const void *caller_stack = nullptr;
  size_t caller_size = 0;
#endif
};

inline thread_local Block block;  // fibers store its address

// resume runs t in place of `me`, or the caller of the block if t is null; `me` is null for the
// caller.
inline void resume(Block &b, Fiber *me, Fiber *t) {
#if defined(__SANITIZE_ADDRESS__)
  void *fake = nullptr;
  __sanitizer_start_switch_fiber(me && me->done ? nullptr : &fake, t ? bottom(t) : b.caller_stack, t ? size_t((char *)t - bottom(t)) : b.caller_size);
#endif
#if defined(__x86_64__)
  void *dead = nullptr;
  emulation_switch(me == nullptr ? &b.caller : me->done ? &dead : &me->sp, t ? t->sp : b.caller);
#else
  swapcontext(me ? &me->context : &b.caller, t ? &t->context : &b.caller);
#endif
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_finish_switch_fiber(fake, nullptr, nullptr);
#endif
}

// next picks a fiber that can run, by the schedule; null: none can.
inline Fiber *next(Block &b) {
  int i = b.pool->ready.pop();
  return i < 0 ? nullptr : b.pool->fiber(i);
}

// report gives the reason for the end of a block to the caller, or prints it.
inline void report(Block &b, const Fiber *f, const char *what) {
  char text[512];
  size_t n = 0;
  auto more = [&](const char *format, auto... v) {
    if (n < sizeof text) n += size_t(snprintf(text + n, sizeof text - n, format, v...));
  };
  more("%s: %s (block %u,%u,%u", b.kernel, what, b.index.x, b.index.y, b.index.z);
  if (f) more(", thread %u,%u,%u", f->thread.x, f->thread.y, f->thread.z);
  more("%s", ")");
  for (int i = 0; i < b.threads; i++) {
    const Fiber *w = b.pool->fiber(i);
    if (w->done || !w->waits) continue;
    more("; thread %d waits at %s, line %d", i, w->where, w->line);
    break;
  }
  if (b.fault != nullptr) {
    snprintf(b.fault, b.fault_size, "%s", text);
    return;
  }
  fprintf(stderr, "%s\n", text);
  fflush(stderr);
  _Exit(3);
}

// die ends the block of the fiber that calls it.
[[noreturn]] inline void die(const char *what) {
  Fiber *f = current();
  report(*f->block, f, what);
  f->done = true;
  resume(*f->block, f, nullptr);
  __builtin_trap();
}

// wait suspends this fiber until another one wakes it.
inline void wait(Fiber *f, const char *where, int line) {
  f->waits = true;
  f->where = where;
  f->line = line;
  resume(*f->block, f, next(*f->block));  // null: back to the caller, which reports that no fiber can run
  f->waits = false;
}

inline void barrier(const char *file, int line) {
  Fiber *f = current();
  Block &b = *f->block;
  if (b.left > 0) die("a thread left before a barrier of its block");
  if (b.arrived == 0) {
    b.barrier_line = line;
    b.barrier_file = file;
  } else if (b.barrier_line != line || (b.barrier_file != file && strcmp(b.barrier_file, file) != 0)) {
    die("the threads of a block wait at different barriers");
  }
  if (++b.arrived < b.threads) {
    wait(f, file, line);
    return;
  }
  b.arrived = 0;
  for (int i = 0; i < b.threads; i++)
    if (i != f->index) b.pool->ready.push(i);
}

// meeting returns the one that the lanes of mask are at, or a new one.
inline Meeting *meeting(Warp &w, uint32_t mask, int op) {
  if (w.open == 1 && w.at[0].mask == mask && w.at[0].op == op) return &w.at[0];
  int free = -1;
  for (int i = 0; i < 4; i++) {
    Meeting &m = w.at[i];
    if (!(w.open >> i & 1)) {
      if (free < 0) free = i;
    } else if (m.mask & mask) {
      if (m.op != op || m.mask != mask) die("the lanes of a warp are at different collectives");
      return &m;
    }
  }
  if (free < 0) die("more collectives at once in a warp than the emulation holds");
  w.open |= 1u << free;
  w.at[free].mask = mask;
  w.at[free].arrived = 0;
  w.at[free].op = op;
  return &w.at[free];
}

// meet takes part in the collective op of the lanes of mask. It returns after the last lane has
// called `answer` with the input of all.
inline void meet(uint32_t mask, int op, void *mine, void (*answer)(Meeting &), const char *what, int line) {
  Fiber *f = current();
  Warp &w = *f->warp;
  if (!(mask >> f->lane & 1)) die("a lane calls a collective whose mask does not name it");
  if (mask & ~w.live) die("a collective names a lane that has left, or that the block does not have");
  Meeting *m = meeting(w, mask, op);
  m->of[f->lane] = mine;
  m->arrived |= 1u << f->lane;
  if (m->arrived != mask) {
    wait(f, what, line);
    return;
  }
  w.open &= ~(1u << (m - w.at));
  if (answer != nullptr) answer(*m);
  Ready &ready = f->block->pool->ready;
  for (uint32_t others = mask & ~(1u << f->lane); others != 0; others &= others - 1) ready.push((f->index & ~31) + __builtin_ctz(others));
}

// enter is the first function of a fiber.
#if defined(__SANITIZE_ADDRESS__)
__attribute__((no_sanitize_address))
#endif
inline void enter() {
  Fiber *f = current();
  Block &b = *f->block;
#if defined(__SANITIZE_ADDRESS__)
  const void *from;
  size_t size;
  __sanitizer_finish_switch_fiber(nullptr, &from, &size);
  if (b.caller_stack == nullptr) {
    b.caller_stack = from;
    b.caller_size = size;
  }
#endif
  b.body(b.args);
  Warp &w = *f->warp;
  if (!f->copies.empty()) die("a thread left with copies that it did not wait for");
  if (!w.products.empty()) die("a thread left with products that it did not wait for");
  f->done = true;
  b.left++;
  w.live &= ~(1u << f->lane);
  if (b.arrived > 0) die("a thread left while others wait at a barrier of its block");
  for (int i = 0; i < 4; i++)
    if (w.open >> i & 1 && w.at[i].mask >> f->lane & 1) die("a lane left while others wait for it");
  resume(b, f, next(b));
  __builtin_trap();
}

inline bool FiberPool::grow(int threads) {
  if (shared == nullptr) {
    void *m = mmap(nullptr, kShared, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (m == MAP_FAILED) return false;
    shared = (unsigned char *)m;
  }
  if (threads <= fibers) return true;
  clear();
  mapped = size_t(threads + 1) * kSlot;
  void *m = mmap(nullptr, mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  map = m == MAP_FAILED ? nullptr : (char *)m;
  if (map == nullptr) return false;
  slots = (char *)((uintptr_t(map) + kSlot - 1) / kSlot * kSlot);
  for (; fibers < threads; fibers++) {
    if (mprotect(slots + size_t(fibers) * kSlot, kGuardPage, PROT_NONE) != 0) return false;
    new (fiber(fibers)) Fiber;
  }
  for (listed = 0; listed < kSlotRanges; listed++) {
    uintptr_t none = 0;
    if (!slot_ranges[listed][0].compare_exchange_strong(none, uintptr_t(slots))) continue;
    slot_ranges[listed][1] = uintptr_t(slots) + size_t(fibers) * kSlot;
    return true;
  }
  listed = -1;
  return false;
}

// begin makes a fiber thread i of the block.
inline void begin(Block &b, int i) {
  Fiber *f = b.pool->fiber(i);
  unsigned n = unsigned(i);
  f->block = &b;
  f->warp = &b.pool->warps[i / 32];
  f->thread = {n % b.size.x, n / b.size.x % b.size.y, n / (b.size.x * b.size.y)};
  f->index = i;
  f->lane = i % 32;
  f->done = f->waits = f->fenced = false;
  f->committed = 0;
  f->copies.clear();
  f->warp->live |= 1u << f->lane;
#if defined(__SANITIZE_ADDRESS__)
  ASAN_UNPOISON_MEMORY_REGION((char *)f - 4096, 4096);  // of the fiber that ended here
#endif
  prepare(f, enter);
}

// run_block runs body as every thread of one block.
inline void run_block() {
  static thread_local std::unique_ptr<FiberPool> pool;
  Block &b = block;
  b.threads = b.left = b.arrived = b.waited = 0;
  b.illegal = false;
  if (pool == nullptr) pool.reset(new FiberPool);
  b.pool = pool.get();
  if (!pool->grow(int(b.size.x * b.size.y * b.size.z))) {
    report(b, nullptr, "no memory for the threads of a block");
    return;
  }
  b.threads = int(b.size.x * b.size.y * b.size.z);
  b.shared = pool->shared;
#if defined(__SANITIZE_ADDRESS__)
  ASAN_UNPOISON_MEMORY_REGION(b.shared, kShared);
  b.caller_stack = nullptr;
#endif
  memset(b.shared, 0xff, b.shared_bytes);  // NaN: nothing is written yet
#if defined(__SANITIZE_ADDRESS__)
  ASAN_POISON_MEMORY_REGION(b.shared + b.shared_bytes, kShared - b.shared_bytes);
#endif
  for (int w = 0; w < (b.threads + 31) / 32; w++) {
    pool->warps[w].live = pool->warps[w].open = pool->warps[w].committed = 0;
    pool->warps[w].products.clear();
  }
  pool->ready.clear(b.schedule, b.schedule * 0x9e3779b97f4a7c15ull + b.index.x * 7919 + b.index.y * 104729 + b.index.z);
  for (int i = 0; i < b.threads; i++) begin(b, i);
  for (int i = 0; i < b.threads; i++) pool->ready.push(b.schedule == kBackward ? b.threads - 1 - i : i);
  resume(b, nullptr, next(b));
  if (b.fault != nullptr && b.fault[0] != 0) return;
  if (b.left != b.threads) report(b, nullptr, "no thread can go on: some wait for others that never come");
  if (b.waited != b.threads && !b.prefetching) report(b, nullptr, "a thread did not wait for the kernel before");
}

}  // namespace emulation
