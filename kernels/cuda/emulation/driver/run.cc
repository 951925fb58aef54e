// Runs the blocks of a launch on several host threads.
#define EMULATION_MAIN
#include "../wild.h"
#include "driver.h"

#include <atomic>
#include <condition_variable>
#include <signal.h>
#include <thread>

namespace driver {

namespace {

// Blocks is a launch that is running.
struct Blocks {
  const Launch *launch = nullptr;
  std::atomic<uint64_t> next{0};
  uint64_t all = 0;
  std::atomic<bool> failed{false};
  std::mutex telling;
  Ended ended;
};

// set_block sets this thread's block up for a launch.
emulation::Block &set_block(const Launch &l) {
  emulation::Block &b = emulation::block;
  b.kernel = l.function->kernel->name;
  b.grid = l.grid;
  b.size = l.block;
  b.shared_bytes = l.shared;
  b.schedule = uint64_t(settings.schedule);
  b.e4m3 = int(settings.e4m3);
  b.body = l.function->kernel->run;
  b.args = l.args->data();
  return b;
}

// some runs blocks until none is left.
void some(Blocks &w) {
  const Launch &l = *w.launch;
  emulation::Block &b = set_block(l);
  char why[512] = "";
  b.fault = why;
  b.fault_size = sizeof why;
  for (uint64_t i; !w.failed && (i = w.next++) < w.all;) {
    b.index = {unsigned(i % l.grid.x), unsigned(i / l.grid.x % l.grid.y), unsigned(i / l.grid.x / l.grid.y)};
    emulation::run_block();
    if (why[0] != 0) {
      std::lock_guard<std::mutex> lock(w.telling);
      w.failed = true;
      w.ended = {b.illegal ? kIllegalAddress : kLaunchFailed, why};
      return;
    }
  }
}

// Workers are threads that help with blocks.
struct Workers {
  std::mutex lock;
  std::condition_variable begin, end;
  Blocks *work = nullptr;
  uint64_t turn = 0;
  int busy = 0, count = 0;

  void start(int n) {
    // Signals are for other threads of the process, except those that a kernel
    // causes.
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    for (; count < n; count++) std::thread([this, from = turn] { loop(from); }).detach();
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
  }

  void loop(uint64_t seen) {
    emulation::watch_thread();
    std::unique_lock<std::mutex> l(lock);
    for (;;) {
      begin.wait(l, [&] { return turn != seen; });
      seen = turn;
      Blocks *w = work;
      l.unlock();
      some(*w);
      l.lock();
      if (--busy == 0) end.notify_one();
    }
  }

  void run(Blocks &w) {
    {
      std::lock_guard<std::mutex> l(lock);
      start(int(std::min(settings.threads, 64l)) - 1);
      work = &w;
      busy = count;
      turn++;
    }
    begin.notify_all();
    some(w);
    std::unique_lock<std::mutex> l(lock);
    end.wait(l, [&] { return busy == 0; });
  }
};

}  // namespace

Ended before(const Launch &l) {
  emulation::watch_signals();
  set_block(l);
  std::string why = emulation::run_prefetch(*l.function->kernel, l.args->data(), inside);
  called("prefetch", long(emulation::prefetched.size()));
  return {why.empty() ? kSuccess : kIllegalAddress, why};
}

Ended run(const Launch &l) {
  emulation::watch_signals();
  static Workers *workers = new Workers;  // its threads run longer than main
  Blocks w;
  w.launch = &l;
  w.all = uint64_t(l.grid.x) * l.grid.y * l.grid.z;
  if (w.all < 2 || settings.threads < 2)
    some(w);
  else
    workers->run(w);
  return w.ended;
}

}  // namespace driver
