// A fiber that accesses invalid memory, or divides by zero, ends its block like die does. The
// handler acts only for code on the stack of a fiber, which is a kernel's; it passes every
// other signal to the previous handler. Linux on x86-64 only; elsewhere the process ends.
#pragma once
#include "block.h"

#if defined(__x86_64__) && defined(__linux__) && !defined(__SANITIZE_ADDRESS__)
#include <mutex>
#include <signal.h>
#include <ucontext.h>

namespace emulation {

constexpr int kSignals[] = {SIGSEGV, SIGBUS, SIGFPE};
inline struct sigaction before[65];

// wild is where a fiber continues after the signal, on a stack that is not used any more.
[[noreturn]] inline void wild(int signal, void *address) {
  current()->block->illegal = signal != SIGFPE;
  char why[96];
  if (current()->block->prefetching) die("an access to memory before the wait for the kernel before");
  snprintf(why, sizeof why, signal == SIGFPE ? "a division by zero" : "an access to %p, where no memory is", address);
  die(why);
}

inline void handle(int signal, siginfo_t *info, void *context) {
  greg_t *r = ((ucontext_t *)context)->uc_mcontext.gregs;
  if (on_fiber(uintptr_t(r[REG_RSP]))) {
    r[REG_RDI] = signal;
    r[REG_RSI] = greg_t(info->si_addr);
    r[REG_RSP] = greg_t(fiber_at(uintptr_t(r[REG_RSP]))) - 8;  // as if wild had been called
    r[REG_RIP] = greg_t(wild);
    r[REG_EFL] &= ~greg_t(0x400);  // string instructions go upwards, as every function expects
    return;
  }
  const struct sigaction &old = before[signal];
  if (old.sa_flags & SA_SIGINFO)
    old.sa_sigaction(signal, info, context);
  else if (old.sa_handler == SIG_DFL || old.sa_handler == SIG_IGN)
    sigaction(signal, &old, nullptr);  // the access happens again
  else
    old.sa_handler(signal);
}

// watch_signals installs the handler, once.
inline void watch_signals() {
  static std::once_flag once;
  std::call_once(once, [] {
    struct sigaction act = {};
    act.sa_sigaction = handle;
    act.sa_flags = SA_SIGINFO | SA_ONSTACK;
    sigfillset(&act.sa_mask);
    for (int s : kSignals) sigaction(s, &act, &before[s]);
  });
}

// watch_thread gives a thread of the emulation a stack for the handler, and unblocks the
// signals that a kernel may cause: if they are blocked, the system ends the process.
inline void watch_thread() {
  static thread_local std::unique_ptr<char[]> memory(new char[64 << 10]);
  stack_t stack = {};
  stack.ss_sp = memory.get();
  stack.ss_size = 64 << 10;
  sigaltstack(&stack, nullptr);
  sigset_t those;
  sigemptyset(&those);
  for (int s : kSignals) sigaddset(&those, s);
  pthread_sigmask(SIG_UNBLOCK, &those, nullptr);
}

}  // namespace emulation
#else
namespace emulation {
inline void watch_signals() {}
inline void watch_thread() {}
}  // namespace emulation
#endif
