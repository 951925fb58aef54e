// One block of CUDA threads on the host: each thread is a fiber with a stack of its
// own, which runs until it waits at a barrier or at a collective of its warp. Blocks
// run one after the other. What a device would leave undefined (threads of a block at
// different barriers, a thread that left before one, lanes of a warp at different
// collectives) ends the process with a line that says where.
#pragma once
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <sys/mman.h>
#include <vector>
#if !defined(__x86_64__)
#include <ucontext.h>
#endif
#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif

struct uint3 {
  unsigned x, y, z;
};
struct dim3 {
  unsigned x = 1, y = 1, z = 1;
};

namespace emulation {

constexpr size_t kStack = 64 << 10;
constexpr size_t kShared = 228 << 10;  // what an SM of Hopper has; a launch names its own part

// Schedules: in which order threads that could run do. A kernel whose result depends
// on it has a race.
enum Schedule { kForward = 0, kBackward = 1, kLowest = 2, kHighest = 3 };  // others: shuffled by this seed

// Collective is one meeting of lanes: everyone leaves up to 32 bytes and, when all
// have come, reads those of the others.
struct Collective {
  uint32_t mask = 0, arrived = 0;
  int readers = 0, op = 0;
  uint64_t values[32][4];
};

struct Warp {
  uint32_t live = 0;
  Collective at[4];
};

// Copy is a cp.async that has not been waited for.
struct Copy {
  void *to;
  const void *from;
  int bytes, size;
};

struct Fiber {
#if defined(__x86_64__)
  void *sp = nullptr;
#else
  ucontext_t context;
#endif
  char *stack = nullptr;
  uint3 thread{};
  int lane = 0, warp = 0;
  bool done = false, waits = false;
  const char *where = nullptr;
  int line = 0;
  std::vector<Copy> copies;   // in order
  std::vector<size_t> groups;  // how many of them each committed group has
};

struct Block {
  uint3 index{};
  dim3 size, grid;
  unsigned char *shared = nullptr;
  size_t shared_bytes = 0;
  int threads = 0, left = 0, arrived = 0;
  int barrier_line = 0;
  const char *barrier_file = "";
  std::vector<Fiber> fibers;
  std::vector<Warp> warps;
  std::vector<int> ready;
  size_t head = 0;
  const char *kernel = "";
  std::function<void()> body;
  uint64_t schedule = 0, random = 0;
  char *stacks = nullptr;
  int stack_count = 0;
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

inline Block block;
inline Fiber *current = nullptr;

[[noreturn]] inline void die(const char *what) {
  fprintf(stderr, "%s: %s (block %u,%u,%u", block.kernel, what, block.index.x, block.index.y, block.index.z);
  if (current) fprintf(stderr, ", thread %u,%u,%u", current->thread.x, current->thread.y, current->thread.z);
  fprintf(stderr, ")\n");
  for (Fiber &f : block.fibers)
    if (!f.done && f.waits) {
      fprintf(stderr, "  thread %d waits at %s, line %d\n", int(&f - block.fibers.data()), f.where, f.line);
      break;
    }
  fflush(stderr);
  _Exit(3);
}

#if defined(__x86_64__)
extern "C" void emulation_switch(void **save, void *to);
#if defined(EMULATION_MAIN)
// Saves what a call keeps, changes stacks, and returns on the other one.
asm(R"(
.text
.p2align 4
.globl emulation_switch
.type emulation_switch,@function
emulation_switch:
  push %rbp
  push %rbx
  push %r12
  push %r13
  push %r14
  push %r15
  mov %rsp,(%rdi)
  mov %rsi,%rsp
  pop %r15
  pop %r14
  pop %r13
  pop %r12
  pop %rbx
  pop %rbp
  ret
.size emulation_switch,.-emulation_switch
)");
#endif
#endif

// resume runs t, or the caller of the block where t is null.
inline void resume(Fiber *t) {
  Fiber *me = current;
#if defined(__SANITIZE_ADDRESS__)
  void *fake = nullptr;
  __sanitizer_start_switch_fiber(me && me->done ? nullptr : &fake, t ? t->stack : block.caller_stack,
                                 t ? kStack : block.caller_size);
#endif
  current = t;
#if defined(__x86_64__)
  void *dead = nullptr;
  void **save = me == nullptr ? &block.caller : me->done ? &dead : &me->sp;
  emulation_switch(save, t ? t->sp : block.caller);
#else
  swapcontext(me ? &me->context : &block.caller, t ? &t->context : &block.caller);
#endif
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_finish_switch_fiber(fake, nullptr, nullptr);
#endif
}

// next picks a fiber that can run, by the schedule; null: none can.
inline Fiber *next() {
  Block &b = block;
  if (b.head == b.ready.size()) return nullptr;
  size_t pick = b.head;
  if (b.schedule == kLowest || b.schedule == kHighest) {  // one warp goes as far as it can before another
    for (size_t i = b.head + 1; i < b.ready.size(); i++)
      if (b.schedule == kLowest ? b.ready[i] < b.ready[pick] : b.ready[i] > b.ready[pick]) pick = i;
  } else if (b.schedule > kHighest) {
    b.random = b.random * 6364136223846793005ull + 1442695040888963407ull;
    pick = b.head + (b.random >> 33) % (b.ready.size() - b.head);
  }
  std::swap(b.ready[pick], b.ready[b.head]);
  Fiber *f = &b.fibers[b.ready[b.head++]];
  if (b.head == b.ready.size()) {
    b.ready.clear();
    b.head = 0;
  }
  return f;
}

inline void wake(Fiber *f) {
  f->waits = false;
  block.ready.push_back(int(f - block.fibers.data()));
}

// wait gives the processor away until someone wakes this fiber.
inline void wait(const char *where, int line) {
  current->waits = true;
  current->where = where;
  current->line = line;
  resume(next());  // null: back to the caller, which reports that nobody can run
}

inline void barrier(const char *file, int line) {
  Block &b = block;
  if (b.left > 0) die("a thread left before a barrier of its block");
  if (b.arrived == 0) {
    b.barrier_line = line;
    b.barrier_file = file;
  } else if (b.barrier_line != line || strcmp(b.barrier_file, file) != 0) {
    die("the threads of a block wait at different barriers");
  }
  if (++b.arrived < b.threads) {
    wait(file, line);
    return;
  }
  b.arrived = 0;
  for (Fiber &f : b.fibers)
    if (&f != current) wake(&f);
}

// meet brings bytes of value to the collective op of the lanes of mask and returns
// when all are there. Each lane calls part once with what it got.
inline Collective *meet(uint32_t mask, int op, const void *value, size_t bytes, const char *file, int line) {
  Warp &w = block.warps[current->warp];
  if (!(mask >> current->lane & 1)) die("a lane calls a collective whose mask does not name it");
  if (mask & ~w.live) die("a collective names a lane that has left, or that the block does not have");
  Collective *c = nullptr, *free = nullptr;
  for (Collective &k : w.at) {
    if (k.mask == 0) free = &k;
    if (k.mask & mask && k.readers == 0) c = &k;
  }
  if (c == nullptr) {
    if (free == nullptr) die("more collectives at once in a warp than the emulation holds");
    c = free;
    c->mask = mask;
    c->arrived = 0;
    c->op = op;
  }
  if (c->op != op || c->mask != mask) die("the lanes of a warp are at different collectives");
  memcpy(c->values[current->lane], value, bytes);
  c->arrived |= 1u << current->lane;
  if (c->arrived != mask) {
    wait(file, line);
    return c;
  }
  c->readers = __builtin_popcount(mask);
  for (int l = 0; l < 32; l++)
    if (l != current->lane && mask >> l & 1) wake(&block.fibers[current->warp * 32 + l]);
  return c;
}

inline void part(Collective *c) {
  if (--c->readers == 0) c->mask = 0;
}

// enter is where a fiber begins.
inline void enter() {
#if defined(__SANITIZE_ADDRESS__)
  const void *bottom;
  size_t size;
  __sanitizer_finish_switch_fiber(nullptr, &bottom, &size);
  if (block.caller_stack == nullptr) {
    block.caller_stack = bottom;
    block.caller_size = size;
  }
#endif
  block.body();
  if (!current->copies.empty()) die("a thread left with copies that it did not wait for");
  current->done = true;
  block.left++;
  block.warps[current->warp].live &= ~(1u << current->lane);
  if (block.arrived > 0) die("a thread left while others wait at a barrier of its block");
  for (Collective &c : block.warps[current->warp].at)
    if (c.mask >> current->lane & 1 && c.readers == 0) die("a lane left while others wait for it");
  resume(next());
  __builtin_trap();
}

inline void prepare(Fiber &f, int i) {
  f.stack = block.stacks + size_t(i) * kStack;
  f.done = f.waits = false;
  f.thread = {i % block.size.x, i / block.size.x % block.size.y, i / (block.size.x * block.size.y)};
  f.lane = i & 31;
  f.warp = i >> 5;
  f.copies.clear();
  f.groups.clear();
  block.warps[f.warp].live |= 1u << f.lane;
#if defined(__x86_64__)
  void **sp = (void **)(f.stack + kStack - 64);
  *--sp = nullptr;  // as if enter had been called: the stack is 8 off a multiple of 16
  *--sp = (void *)enter;
  for (int r = 0; r < 6; r++) *--sp = nullptr;
  f.sp = sp;
#else
  getcontext(&f.context);
  f.context.uc_stack.ss_sp = f.stack;
  f.context.uc_stack.ss_size = kStack;
  f.context.uc_link = nullptr;
  makecontext(&f.context, enter, 0);
#endif
}

// run_block runs body as every thread of one block.
inline void run_block() {
  Block &b = block;
  b.threads = int(b.size.x * b.size.y * b.size.z);
  b.left = b.arrived = 0;
  if (b.stack_count < b.threads) {
    if (b.stacks) munmap(b.stacks, size_t(b.stack_count) * kStack);
    void *m = mmap(nullptr, size_t(b.threads) * kStack, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (m == MAP_FAILED) die("no memory for the stacks of a block");
    b.stacks = (char *)m;
    b.stack_count = b.threads;
  }
  if (b.shared == nullptr) {
    void *m = mmap(nullptr, kShared, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (m == MAP_FAILED) die("no memory for the shared memory of a block");
    b.shared = (unsigned char *)m;
  }
#if defined(__SANITIZE_ADDRESS__)
  ASAN_UNPOISON_MEMORY_REGION(b.shared, kShared);
  ASAN_UNPOISON_MEMORY_REGION(b.stacks, size_t(b.threads) * kStack);
  b.caller_stack = nullptr;
#endif
  memset(b.shared, 0xff, b.shared_bytes);  // NaN: nobody has written yet
#if defined(__SANITIZE_ADDRESS__)
  ASAN_POISON_MEMORY_REGION(b.shared + b.shared_bytes, kShared - b.shared_bytes);
#endif
  b.fibers.resize(b.threads);
  b.warps.assign((b.threads + 31) / 32, Warp{});
  b.ready.clear();
  b.head = 0;
  b.random = b.schedule * 0x9e3779b97f4a7c15ull + b.index.x * 7919 + b.index.y * 104729 + b.index.z;
  for (int i = 0; i < b.threads; i++) prepare(b.fibers[i], i);
  for (int i = 0; i < b.threads; i++) b.ready.push_back(b.schedule == kBackward ? b.threads - 1 - i : i);
  current = nullptr;
  resume(next());
  current = nullptr;
  if (b.left != b.threads) die("no thread can go on: some wait for others that never come");
}

}  // namespace emulation
