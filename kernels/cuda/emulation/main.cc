// The device of the tests: a process that holds memory and launches kernels, controlled by
// standard input. Every command is a letter and its operands, little endian:
//
//   a size             allocates; answers the address
//   f address          frees
//   w address n bytes  writes
//   r address n        reads; answers the bytes
//   l name grid[3] block[3] shared schedule n args   launches; answers one byte
//   p                  answers how many pieces of memory the last launch prefetched, then address and bytes of each
//   b n                sets how many bits of sums of E4M3 the matrix units keep; 0: all
//   k                  answers the number of kernels, then name and size of args of each
//
// A name is its length and its bytes. Numbers have 64 bits. Allocated memory is filled with
// 0xff. 256 bytes before and after an allocation are checked: by AddressSanitizer if the build
// has it, else after every launch.
#define EMULATION_MAIN
#include "emulate.h"
#include "wild.h"

#include <map>
#include <string>
#include <unistd.h>

namespace {

constexpr size_t kGuard = 256;
constexpr unsigned char kMark = 0xa5;
std::map<uint64_t, size_t> allocated;

[[noreturn]] void fail(const char *what) {
  fprintf(stderr, "emulation: %s\n", what);
  _Exit(2);
}

void get(void *to, size_t n) {
  if (fread(to, 1, n, stdin) != n) fail("the input ends within a command");
}

uint64_t number() {
  uint64_t v;
  get(&v, sizeof v);
  return v;
}

void put(const void *from, size_t n) {
  if (fwrite(from, 1, n, stdout) != n) fail("cannot answer");
}

std::string name() {
  std::string s(number(), 0);
  get(s.data(), s.size());
  return s;
}

void allocate() {
  size_t n = number();
  void *p = nullptr;
#if defined(__SANITIZE_ADDRESS__)
  if (posix_memalign(&p, 256, n ? n : 1)) fail("no memory");
  uint64_t at = uint64_t(p);
  memset(p, 0xff, n);
#else
  if (posix_memalign(&p, 256, n + 2 * kGuard)) fail("no memory");
  uint64_t at = uint64_t(p) + kGuard;
  memset(p, kMark, n + 2 * kGuard);
  memset((void *)at, 0xff, n);
#endif
  allocated[at] = n;
  put(&at, sizeof at);
}

void release() {
  uint64_t at = number();
  if (!allocated.erase(at)) fail("free of an address that was not allocated");
#if defined(__SANITIZE_ADDRESS__)
  free((void *)at);
#else
  free((void *)(at - kGuard));
#endif
}

// is_inside reports whether n bytes at an address are in one allocation.
bool is_inside(uint64_t at, size_t n) {
  auto a = allocated.upper_bound(at);
  if (a == allocated.begin()) return false;
  --a;
  return at - a->first <= a->second && n <= a->second - (at - a->first);
}

void inside(uint64_t at, size_t n) {
  if (!is_inside(at, n)) fail("a copy of what is in no allocation");
}

void guards(const char *kernel) {
#if !defined(__SANITIZE_ADDRESS__)
  for (auto &[at, n] : allocated)
    for (size_t i = 0; i < kGuard; i++)
      if (((unsigned char *)at)[-1 - long(i)] != kMark || ((unsigned char *)at)[n + i] != kMark) {
        fprintf(stderr, "%s: wrote beyond an allocation of %zu bytes\n", kernel, n);
        _Exit(3);
      }
#else
  (void)kernel;
#endif
}

void launch() {
  std::string kernel = name();
  uint64_t v[8];
  for (uint64_t &x : v) x = number();
  size_t n = number();
  alignas(16) static unsigned char args[4096];
  if (n > sizeof args) fail("arguments of more than 4096 bytes");
  get(args, n);
  const emulation::Kernel *k = nullptr;
  for (const emulation::Kernel &c : emulation::kernels())
    if (kernel == c.name) k = &c;
  if (k == nullptr) {
    fprintf(stderr, "emulation: no kernel %s\n", kernel.c_str());
    _Exit(2);
  }
  if (k->args != n) {
    fprintf(stderr, "%s: arguments of %zu bytes, it takes %zu\n", k->name, n, k->args);
    _Exit(2);
  }
  emulation::Block &b = emulation::block;
  b.kernel = k->name;
  b.grid = {unsigned(v[0]), unsigned(v[1]), unsigned(v[2])};
  b.size = {unsigned(v[3]), unsigned(v[4]), unsigned(v[5])};
  b.shared_bytes = v[6];
  b.schedule = v[7];
  uint64_t threads = v[3] * v[4] * v[5];
  if (threads == 0 || threads > 1024 || v[6] > emulation::kShared) fail("a block of a size that no device takes");
  std::string wrong = emulation::run_prefetch(*k, args, is_inside);
  if (!wrong.empty()) {
    fprintf(stderr, "%s\n", wrong.c_str());
    _Exit(3);
  }
  b.body = k->run;
  b.args = args;
  for (b.index.z = 0; b.index.z < b.grid.z; b.index.z++)
    for (b.index.y = 0; b.index.y < b.grid.y; b.index.y++)
      for (b.index.x = 0; b.index.x < b.grid.x; b.index.x++) emulation::run_block();
  guards(k->name);
  put("", 1);
}

void prefetches() {
  uint64_t n = emulation::prefetched.size();
  put(&n, sizeof n);
  for (const emulation::Prefetched &p : emulation::prefetched) put(&p, sizeof p);
}

void list() {
  uint64_t n = emulation::kernels().size();
  put(&n, sizeof n);
  for (const emulation::Kernel &k : emulation::kernels()) {
    uint64_t length = strlen(k.name), args = k.args;
    put(&length, sizeof length);
    put(k.name, length);
    put(&args, sizeof args);
  }
}

}  // namespace

int main() {
  emulation::watch_signals();
  emulation::watch_thread();
  for (;;) {
    int c = getchar();
    switch (c) {
      case EOF:
        fflush(stdout);
        _Exit(0);
      case 'a':
        allocate();
        break;
      case 'f':
        release();
        continue;
      case 'w': {
        uint64_t at = number(), n = number();
        inside(at, n);
        get((void *)at, n);
        continue;
      }
      case 'r': {
        uint64_t at = number(), n = number();
        inside(at, n);
        put((void *)at, n);
        break;
      }
      case 'l':
        launch();
        break;
      case 'p':
        prefetches();
        break;
      case 'b':
        emulation::block.e4m3 = int(number());
        continue;
      case 'k':
        list();
        break;
      default:
        fail("an unknown command");
    }
    fflush(stdout);
  }
}
