// An emulation of NCCL: the part of the library that vapp calls, on the emulated driver. Ranks
// are processes, or devices of one process; they meet in POSIX shared memory. A call is work of a
// stream, also in a graph. Ranks whose calls differ in kind, size or order get an error, as do
// ranks that wait for one that has gone or that does not come. As with NCCL, the error is the
// communicator's (ncclCommGetAsyncError), and the stream waits until ncclCommAbort.
// VAPP_EMULATED_NCCL has settings, separated by commas and read at each call: version=21805,
// timeout=20000 (milliseconds without an answer), memory=4194304 (bytes of a communicator), init=3
// (a result that ncclCommInitRank returns).
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <deque>
#include <string>
#include <vector>

#define API extern "C" __attribute__((visibility("default")))

namespace {

enum Result { kSuccess = 0, kCUDAError = 1, kSystemError = 2, kInternalError = 3, kInvalidArgument = 4, kInvalidUsage = 5, kRemoteError = 6 };
enum Kind { kAllReduce, kAllGather, kSend, kRecv };
const char *const kinds[] = {"ncclAllReduce", "ncclAllGather", "ncclSend", "ncclRecv"};
constexpr int kFloat = 7, kSum = 0, kMemTotal = 3;
constexpr int kMost = 8;               // ranks of a communicator
constexpr size_t kPiece = 32 << 10;    // numbers that go through shared memory at once

// Rank is what a rank shows the others. A collective goes in rounds of a piece each.
struct Rank {
  std::atomic<int> here;  // 0 not yet, 1 joined, 2 gone
  std::atomic<int> pid;
  std::atomic<uint64_t> posted, done;  // rounds
  int kind;                            // of the posted round's call
  uint64_t n, nth;                     // its numbers, and which call of the communicator it is
  float piece[kPiece];
};

// Box is where a rank puts what it sends to another one.
struct Box {
  std::atomic<uint64_t> sent, taken;  // pieces
  uint64_t n;                         // numbers of the whole message
  float piece[kPiece];
};

// Shared is the memory of a communicator's ranks; it begins as zeros.
struct Shared {
  std::atomic<int> world, joined, failed;  // failed: the Result of the first failure
  std::atomic<int> explained;              // why is written
  char why[256];
  Rank ranks[kMost];
  Box boxes[kMost][kMost];  // by sender and receiver
};

int (*host)(void *, const char *(*)(void *), void *) = nullptr;
int (*inside)(uint64_t, size_t) = nullptr;
int (*allocate)(uint64_t *, size_t) = nullptr;
int (*release)(uint64_t) = nullptr;
int (*current)(void **) = nullptr;

struct Comm;

// Call is one collective, send or receive, and how far it is.
struct Call {
  Kind kind;
  const float *x;
  float *y;
  size_t n;
  int peer;
  size_t at = 0;
  bool posted = false, ended = false;
};

// Batch is the work of a stream: one call, or those between ncclGroupStart and ncclGroupEnd.
struct Batch {
  Comm *comm = nullptr;
  std::vector<Call> calls;
  double since = 0;  // seconds; 0: not running
};

struct Comm {
  Shared *s;
  int rank, world;
  std::string name;
  std::atomic<bool> aborted{false};
  uint64_t round = 0, nth = 0;  // of collectives
  int splits = 0;
  uint64_t memory = 0;
  std::deque<Batch> batches;  // graphs launch them again

  int fail(Result code, const char *why) {
    int none = 0;
    if (s->failed.compare_exchange_strong(none, code)) {
      snprintf(s->why, sizeof s->why, "%s", why);
      s->explained = 1;
    }
    return rank;
  }
};

thread_local int depth = 0;
thread_local Batch grouped;
thread_local void *grouped_stream = nullptr;

// setting returns a number of VAPP_EMULATED_NCCL, or its default.
long setting(const char *name, long without) {
  const char *text = getenv("VAPP_EMULATED_NCCL");
  std::string all = std::string(",") + (text ? text : ""), key = std::string(",") + name + "=";
  size_t at = all.find(key);
  return at == std::string::npos ? without : atol(all.c_str() + at + key.size());
}

double now() {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return double(t.tv_sec) + 1e-9 * double(t.tv_nsec);
}

bool driver() {
  if (host) return true;
  const char *name = getenv("VAPP_LIBCUDA");
  void *d = name ? dlopen(name, RTLD_NOW | RTLD_NOLOAD) : nullptr;
  if (d == nullptr) return false;
  *(void **)&inside = dlsym(d, "vapp_emulated_inside");
  *(void **)&allocate = dlsym(d, "cuMemAlloc_v2");
  *(void **)&release = dlsym(d, "cuMemFree_v2");
  *(void **)&current = dlsym(d, "cuCtxGetCurrent");
  *(void **)&host = dlsym(d, "vapp_emulated_host");
  return inside && allocate && release && current && host;
}

// gone reports whether a rank has left or its process has ended.
bool gone(const Rank &r) { return r.here == 2 || (r.here == 1 && kill(r.pid, 0) != 0 && errno == ESRCH); }

// Each of the following gets further with a call. It returns the rank that the call waits for, or
// −1 when the call has ended. The call of a communicator that failed does not end.

int collective(Comm &c, Call &o) {
  Shared &s = *c.s;
  Rank &me = s.ranks[c.rank];
  for (; o.at < o.n; o.at += kPiece) {
    size_t piece = std::min(kPiece, o.n - o.at);
    if (!o.posted) {
      for (int r = 0; r < c.world; r++)
        if (s.ranks[r].done < c.round) return r;  // it still reads my last piece
      me.kind = o.kind;
      me.n = o.n;
      me.nth = c.nth;
      memcpy(me.piece, o.x + o.at, 4 * piece);
      me.posted = c.round + 1;
      o.posted = true;
    }
    for (int r = 0; r < c.world; r++)
      if (s.ranks[r].posted <= c.round) return r;
    for (int r = 0; r < c.world; r++) {
      const Rank &other = s.ranks[r];
      if (other.kind == o.kind && other.n == o.n && other.nth == c.nth) continue;
      char why[256];
      snprintf(why, sizeof why, "call %lu: %s of %zu numbers on rank %d, %s of %zu on rank %d", (unsigned long)c.nth, kinds[o.kind], o.n, c.rank, kinds[other.kind],
               size_t(other.n), r);
      return c.fail(kInvalidUsage, why);
    }
    if (o.kind == kAllGather)
      for (int r = 0; r < c.world; r++) memcpy(o.y + size_t(r) * o.n + o.at, s.ranks[r].piece, 4 * piece);
    else
      for (size_t i = 0; i < piece; i++) {  // the order depends on the size, as with NCCL
        float sum = 0.0f;
        for (int k = 0; k < c.world; k++) sum += s.ranks[(o.n + size_t(k)) % size_t(c.world)].piece[i];
        o.y[o.at + i] = sum;
      }
    o.posted = false;
    me.done = ++c.round;
  }
  c.nth++;
  return -1;
}

int send(Comm &c, Call &o) {
  Box &b = c.s->boxes[c.rank][o.peer];
  for (; o.at < o.n; o.at += kPiece) {
    if (b.taken < b.sent) return o.peer;
    b.n = o.n;
    memcpy(b.piece, o.x + o.at, 4 * std::min(kPiece, o.n - o.at));
    b.sent++;
  }
  return b.taken < b.sent ? o.peer : -1;
}

int receive(Comm &c, Call &o) {
  Box &b = c.s->boxes[o.peer][c.rank];
  for (; o.at < o.n; o.at += kPiece) {
    if (b.sent <= b.taken) return o.peer;
    if (b.n != o.n) {
      char why[256];
      snprintf(why, sizeof why, "ncclSend of %zu numbers on rank %d, ncclRecv of %zu on rank %d", size_t(b.n), o.peer, o.n, c.rank);
      return c.fail(kInvalidUsage, why);
    }
    memcpy(o.y + o.at, b.piece, 4 * std::min(kPiece, o.n - o.at));
    b.taken++;
  }
  return -1;
}

// ended makes a batch ready for the next launch of its graph.
const char *ended(Batch &b) {
  for (Call &o : b.calls) o.at = 0, o.posted = o.ended = false;
  b.since = 0;
  return nullptr;
}

// run is the batch's turn on its stream: see vapp_emulated_host.
const char *run(void *data) {
  Batch &b = *(Batch *)data;
  Comm &c = *b.comm;
  if (c.aborted) return ended(b);
  if (b.since == 0) {
    b.since = now();
    for (Call &o : b.calls) {
      size_t all = 4 * o.n, y = o.kind == kAllGather ? all * size_t(c.world) : all;
      if ((o.x && !inside(uint64_t(o.x), all)) || (o.y && !inside(uint64_t(o.y), y))) return "a collective of memory that is not the device's";
    }
  }
  bool left[kMost];
  for (int r = 0; r < c.world; r++) left[r] = gone(c.s->ranks[r]);  // before the calls look at what it did
  int waits = -1;
  const Call *which = nullptr;
  for (Call &o : b.calls) {
    if (o.ended || c.s->failed) continue;
    int r = o.kind == kSend ? send(c, o) : o.kind == kRecv ? receive(c, o) : collective(c, o);
    if (r < 0)
      o.ended = true;
    else
      waits = r, which = &o;
  }
  double limit = 1e-3 * double(setting("timeout", 20000));
  if (waits >= 0 && !c.s->failed) {
    char why[256];
    if (left[waits]) {
      snprintf(why, sizeof why, "rank %d waits in %s of %zu numbers for rank %d, which has gone", c.rank, kinds[which->kind], which->n, waits);
      c.fail(kRemoteError, why);
    } else if (now() - b.since > limit) {
      snprintf(why, sizeof why, "rank %d waits in %s of %zu numbers for rank %d, which does not come", c.rank, kinds[which->kind], which->n, waits);
      c.fail(kRemoteError, why);
    }
  }
  if (c.s->failed) return now() - b.since > 3 * limit ? "a communicator that failed was not aborted" : "";
  return waits >= 0 ? "" : ended(b);
}

Result give(Comm *c, void *stream, Batch b) {
  b.comm = c;
  c->batches.push_back(std::move(b));
  return host(stream, run, &c->batches.back()) == 0 ? kSuccess : kCUDAError;
}

Result call(Kind kind, const void *x, void *y, size_t n, int type, int peer, Comm *c, void *stream) {
  if (c == nullptr || type != kFloat || peer < 0 || peer >= c->world) return kInvalidArgument;
  if (c->aborted) return kInvalidUsage;
  if (c->s->failed) return Result(c->s->failed.load());
  if (n == 0) return kSuccess;
  if ((kind != kRecv && x == nullptr) || (kind != kSend && y == nullptr)) return kInvalidArgument;
  Batch b;
  b.calls.push_back(Call{kind, (const float *)x, (float *)y, n, peer});
  if (depth == 0) return give(c, stream, std::move(b));
  if (grouped.comm != nullptr && (grouped.comm != c || grouped_stream != stream)) return kInvalidUsage;  // vapp has no such group
  grouped.comm = c;
  grouped_stream = stream;
  grouped.calls.push_back(b.calls[0]);
  return kSuccess;
}

// join makes this process a rank of the communicator with that name, and waits for the others.
Result join(Comm **out, int world, const std::string &name, int rank) {
  if (!driver() || world < 1 || world > kMost || rank < 0 || rank >= world) return kInvalidArgument;
  void *context = nullptr;
  if (current(&context) != 0 || context == nullptr) return kCUDAError;
  int f = shm_open(name.c_str(), O_CREAT | O_RDWR, 0600);
  if (f < 0) return kSystemError;
  void *at = ftruncate(f, sizeof(Shared)) == 0 ? mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED, f, 0) : MAP_FAILED;
  close(f);
  if (at == MAP_FAILED) return kSystemError;
  Shared *s = (Shared *)at;
  Rank &me = s->ranks[rank];
  int none = 0;
  Result r = kSuccess;
  if (!s->world.compare_exchange_strong(none, world) && none != world) r = kInvalidArgument;
  none = 0;
  if (!r && !me.here.compare_exchange_strong(none, 1)) r = kInvalidUsage;  // there is such a rank
  if (!r) {
    me.pid = getpid();
    s->joined++;
  }
  double since = now(), limit = 1e-3 * double(setting("timeout", 20000));
  while (!r && s->joined < world) {
    usleep(100);
    if (now() - since > limit) r = kRemoteError;
    for (int k = 0; k < world; k++)
      if (gone(s->ranks[k]) && s->joined < world) r = kRemoteError;
  }
  shm_unlink(name.c_str());  // all have it, or it has failed
  uint64_t memory = 0;
  if (!r && allocate(&memory, size_t(setting("memory", 4 << 20))) != 0) r = kCUDAError;
  if (r) {
    if (r != kInvalidUsage) me.here = 2;
    munmap(at, sizeof(Shared));
    return r;
  }
  Comm *c = new Comm;
  c->s = s;
  c->rank = rank;
  c->world = world;
  c->name = name;
  c->memory = memory;
  *out = c;
  return kSuccess;
}

// leave frees the device's memory of a communicator.
void leave(Comm *c) {
  c->s->ranks[c->rank].here = 2;
  if (c->memory) release(c->memory);
  c->memory = 0;
}

}  // namespace

struct ncclUniqueId {
  char text[128];
};

API int ncclGetVersion(int *v) {
  *v = int(setting("version", 22803));
  return kSuccess;
}
API const char *ncclGetErrorString(int code) {
  switch (code) {
    case kSuccess: return "no error";
    case kCUDAError: return "unhandled cuda error";
    case kSystemError: return "unhandled system error";
    case kInternalError: return "internal error";
    case kInvalidArgument: return "invalid argument";
    case kInvalidUsage: return "invalid usage";
    case kRemoteError: return "remote process exited or there was a network error";
  }
  return "unknown result code";
}
API const char *ncclGetLastError(void *comm) { return comm && ((Comm *)comm)->s->explained ? ((Comm *)comm)->s->why : ""; }
API int ncclGetUniqueId(ncclUniqueId *id) {
  uint64_t n[2];
  if (getrandom(n, sizeof n, 0) != sizeof n) return kSystemError;
  memset(id, 0, sizeof *id);
  snprintf(id->text, sizeof id->text, "/vapp-nccl-%016lx%016lx", (unsigned long)n[0], (unsigned long)n[1]);
  return kSuccess;
}
API int ncclCommInitRank(void **comm, int world, ncclUniqueId id, int rank) {
  if (long r = setting("init", 0)) return int(r);
  id.text[sizeof id.text - 1] = 0;
  if (strncmp(id.text, "/vapp-nccl-", 11) != 0) return kInvalidArgument;
  return join((Comm **)comm, world, id.text, rank);
}
// ncclCommSplit makes a communicator of the ranks with the same color, in their order. Ranks show
// their colors in the boxes to themselves.
API int ncclCommSplit(void *comm, int color, int key, void **out, void *config) {
  Comm *c = (Comm *)comm;
  if (c == nullptr || config != nullptr || c->aborted || color < 0 || key != c->rank || c->splits > 0) return kInvalidArgument;
  Box &mine = c->s->boxes[c->rank][c->rank];
  mine.n = uint64_t(color);
  mine.taken++;
  mine.sent++;
  int world = 0, rank = 0;
  double since = now(), limit = 1e-3 * double(setting("timeout", 20000));
  for (int r = 0; r < c->world; r++) {
    const Box &other = c->s->boxes[r][r];
    for (; other.sent == 0; usleep(100))
      if (gone(c->s->ranks[r]) || now() - since > limit) return kRemoteError;
    if (other.n != mine.n) continue;
    if (r < c->rank) rank++;
    world++;
  }
  c->splits++;
  return join((Comm **)out, world, c->name + "-" + std::to_string(color), rank);
}
API int ncclCommGetAsyncError(void *comm, int *code) {
  Comm *c = (Comm *)comm;
  *code = c->s->failed;
  return kSuccess;
}
API int ncclCommMemStats(void *comm, int what, uint64_t *n) {
  if (comm == nullptr || what != kMemTotal) return kInvalidArgument;
  *n = ((Comm *)comm)->memory ? uint64_t(setting("memory", 4 << 20)) : 0;
  return kSuccess;
}
// Work of an aborted communicator may still be queued, so its memory on the host stays.
API int ncclCommAbort(void *comm) {
  Comm *c = (Comm *)comm;
  c->aborted = true;
  leave(c);
  return kSuccess;
}
API int ncclCommDestroy(void *comm) {
  Comm *c = (Comm *)comm;
  leave(c);
  munmap(c->s, sizeof(Shared));
  delete c;
  return kSuccess;
}
API int ncclGroupStart() {
  depth++;
  return kSuccess;
}
API int ncclGroupEnd() {
  if (depth == 0) return kInvalidUsage;
  if (--depth > 0 || grouped.comm == nullptr) return kSuccess;
  Batch b;
  std::swap(b, grouped);
  return give(b.comm, grouped_stream, std::move(b));
}
API int ncclAllReduce(const void *x, void *y, size_t n, int type, int op, void *comm, void *stream) {
  if (op != kSum) return kInvalidArgument;
  return call(kAllReduce, x, y, n, type, 0, (Comm *)comm, stream);
}
API int ncclAllGather(const void *x, void *y, size_t n, int type, void *comm, void *stream) {
  return call(kAllGather, x, y, n, type, 0, (Comm *)comm, stream);
}
API int ncclSend(const void *x, size_t n, int type, int peer, void *comm, void *stream) {
  return call(kSend, x, nullptr, n, type, peer, (Comm *)comm, stream);
}
API int ncclRecv(void *y, size_t n, int type, int peer, void *comm, void *stream) {
  return call(kRecv, nullptr, y, n, type, peer, (Comm *)comm, stream);
}
