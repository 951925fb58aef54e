// A CUDA thread on the host: a fiber with its own stack, which runs until it yields. Stacks are
// in slots. The data of a fiber is above its stack, so that a fiber finds it from the address
// of its own frame. Below a stack is an inaccessible page.
#pragma once
#include <cstddef>
#include <cstdint>
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

struct Block;
struct Warp;

// Copy is a cp.async that was not waited for.
struct Copy {
  void *to;
  const void *from;
  int bytes;
  unsigned group;  // how many were committed before it
};

struct Fiber {
#if defined(__x86_64__)
  void *sp = nullptr;
#else
  ucontext_t context;
#endif
  Block *block = nullptr;
  Warp *warp = nullptr;
  uint3 thread{};
  int index = 0, lane = 0;
  bool done = false, waits = false;
  bool fenced = false;  // a wgmma fence since the last wait for products
  bool proxied = true;  // a fence of proxies since the last wait for a barrier in shared memory
  const char *where = nullptr;
  int line = 0;
  unsigned committed = 0;    // groups of copies
  std::vector<Copy> copies;  // in order
};

// A slot is the memory of a fiber, aligned to its size. Stacks begin at different distances
// from the ends of their slots; otherwise all would be in the same few cache sets.
constexpr size_t kSlot = 128 << 10, kGuardPage = 4096;
constexpr size_t kColours = 32, kColour = 17 * 64;
constexpr size_t kHeader = (sizeof(Fiber) + 63) / 64 * 64;

inline Fiber *fiber_at(uintptr_t address) {
  uintptr_t slot = address / kSlot;
  return (Fiber *)((slot + 1) * kSlot - slot % kColours * kColour - kHeader);
}

// current returns the fiber that calls it.
inline Fiber *current() { return fiber_at(uintptr_t(__builtin_frame_address(0))); }

inline char *bottom(const Fiber *f) { return (char *)(uintptr_t(f) / kSlot * kSlot + kGuardPage); }

#if defined(__x86_64__)
extern "C" void emulation_switch(void **save, void *to);
#if defined(EMULATION_MAIN)
// Saves the callee-saved registers, switches stacks, and returns on the other stack.
asm(R"(
.text
.p2align 4
.globl emulation_switch
.hidden emulation_switch
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

// prepare makes f begin with enter when it is resumed.
inline void prepare(Fiber *f, void (*enter)()) {
#if defined(__x86_64__)
  void **sp = (void **)f;
  *--sp = nullptr;  // as if enter had been called: the stack is 8 off a multiple of 16
  *--sp = (void *)enter;
  for (int r = 0; r < 6; r++) *--sp = nullptr;
  f->sp = sp;
#else
  getcontext(&f->context);
  f->context.uc_stack.ss_sp = bottom(f);
  f->context.uc_stack.ss_size = size_t((char *)f - bottom(f));
  f->context.uc_link = nullptr;
  makecontext(&f->context, enter, 0);
#endif
}

}  // namespace emulation
