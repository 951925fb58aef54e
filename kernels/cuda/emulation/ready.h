// The order in which threads of a block run, among those that can run.
#pragma once
#include <cstdint>
#include <cstring>
#include <utility>

namespace emulation {

constexpr int kThreads = 1024;  // largest number of threads of a block

// Schedules: the order in which threads run, among those that can. A kernel whose result
// depends on it has a race.
enum Schedule { kForward = 0, kBackward = 1, kLowest = 2, kHighest = 3 };  // others: shuffled by this seed

// Ready holds the fibers that can run, each at most once.
class Ready {
 public:
  void clear(uint64_t schedule, uint64_t seed) {
    by = schedule;
    random = seed;
    head = tail = 0;
    memset(set, 0, sizeof set);
  }
  void push(int i) {
    if (by == kLowest || by == kHighest)
      set[i / 64] |= uint64_t(1) << i % 64;
    else
      ring[tail++ % kThreads] = uint16_t(i);
  }
  // pop picks a fiber by the schedule; −1: none can run.
  int pop() {
    if (by == kLowest || by == kHighest) return extreme();  // one warp runs as far as it can before another
    if (head == tail) return -1;
    if (by > kHighest) {
      random = random * 6364136223846793005ull + 1442695040888963407ull;
      std::swap(ring[(head + unsigned((random >> 33) % (tail - head))) % kThreads], ring[head % kThreads]);
    }
    return ring[head++ % kThreads];
  }

 private:
  uint64_t by = 0, random = 0;
  unsigned head = 0, tail = 0;
  uint16_t ring[kThreads];
  uint64_t set[kThreads / 64];

  int extreme() {
    constexpr int words = kThreads / 64;
    for (int k = 0; k < words; k++) {
      int w = by == kLowest ? k : words - 1 - k;
      if (set[w] == 0) continue;
      int bit = by == kLowest ? __builtin_ctzll(set[w]) : 63 - __builtin_clzll(set[w]);
      set[w] &= ~(uint64_t(1) << bit);
      return 64 * w + bit;
    }
    return -1;
  }
};

}  // namespace emulation
