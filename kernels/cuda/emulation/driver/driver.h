// An emulation of the CUDA driver: the part of libcuda that vapp calls, on the emulation of the
// kernels. It refuses what a device would refuse: limits of launches, calls that a capture does
// not allow, memory that does not exist or was freed. A stream's work runs at once, or as late
// as possible (order=lazy): then a missing wait always shows.
#pragma once
#include "../emulate.h"

#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>

#define API extern "C" __attribute__((visibility("default")))

namespace driver {

// Results of the driver's calls, with the numbers of cuda.h.
enum Result {
  kSuccess = 0,
  kInvalidValue = 1,
  kOutOfMemory = 2,
  kUnavailable = 46,
  kNoDevice = 100,
  kInvalidDevice = 101,
  kInvalidImage = 200,
  kInvalidContext = 201,
  kNoBinary = 209,
  kInvalidHandle = 400,
  kNotFound = 500,
  kNotReady = 600,
  kIllegalAddress = 700,
  kOutOfResources = 701,
  kContextDestroyed = 709,
  kLaunchFailed = 719,
  kNotSupported = 801,
  kCaptureUnsupported = 900,
  kCaptureInvalidated = 901,
  kCaptureMerge = 902,
  kCaptureUnmatched = 903,
  kCaptureUnjoined = 904,
  kCaptureIsolation = 905,
  kCapturedEvent = 907,
  kWrongThread = 908,
};

// Settings are the values of VAPP_EMULATED: name=value, separated by commas.
struct Settings {
  long old = 0;  // so many devices of compute capability 7.5 come first
  long devices = 1, version = 13000, major = 9, minor = 0, sms = 132;
  long memory = 8l << 30;   // bytes of the device
  long held = 0;            // bytes that other processes hold
  long context = 64 << 20;  // bytes that a context takes
  long stack = 0;           // bytes of local memory of a kernel's thread
  long limit = 1024;        // bytes of it that a context has for each thread from the start
  long graph = 4096;        // bytes that a node of a graph takes
  long shared = 227 << 10;  // bytes of shared memory that a block may ask for
  long mode = 0;            // compute mode: 2 prohibited, 3 exclusive
  long ecc = 1;
  long threads = 2;   // of the host, that run blocks
  long schedule = 0;  // in which order a block's threads run: block.h
  long e4m3 = 0;      // bits that the matrix units keep of sums of products of E4M3; 0: all
  long lazy = 0;      // streams' work runs when something waits for it
  long idle = 0;      // launches do nothing: to measure the cost of a list
  std::string name = "emulated GPU";
};
extern Settings settings;

// set takes settings and faults; false: there is no setting `wrong`, or it cannot have its
// value.
bool set(const char *text, std::string *wrong);

// called counts a call and returns the fault that was requested, or kSuccess; a call that must
// hang does not return.
Result called(const char *name, long times = 1);

extern std::recursive_mutex everything;

#define CALL(name)                                             \
  std::lock_guard<std::recursive_mutex> lock(driver::everything); \
  if (driver::Result fault = driver::called(name)) return fault

struct Allocation {
  size_t bytes, taken;  // requested; taken from the device, in its granules
  char *map;            // between two inaccessible pages
  size_t mapped;
};

// Context is the primary context; all devices share it, since all have one memory here.
struct Context {
  int users = 0;
  Result sticky = kSuccess;  // the error that ended it
  bool hung = false;         // a kernel never ends: nothing happens any more
  std::map<uint64_t, Allocation> memory;
  std::map<uint64_t, size_t> pinned;
  long taken = 0;   // bytes of the device
  long limit = 0;   // bytes of local memory for each thread
  long stacks = 0;  // bytes of the device that raising the limit has taken
};
extern Context context;

// reserve_stack takes memory so that every thread that the multiprocessors run at once has n bytes of local memory.
Result reserve_stack(long n);

// usable returns kSuccess if the calling thread has a context that works.
Result usable();
// unsafe does what usable does, and ends a capture of this thread that does not allow such a
// call.
Result unsafe();
// inside reports whether n bytes at an address are device memory or pinned memory.
bool inside(uint64_t at, size_t n);
bool is_pinned(const void *p, size_t n);
// forever ends the process if a call would wait for a device that hangs.
void forever(const char *call);
// guards returns false if there was a write beyond an allocation.
bool guards();
void release_all();

struct Function {
  const emulation::Kernel *kernel;
  int shared_max = 48 << 10;
};

// Launch is a launch with its arguments.
struct Launch {
  Function *function = nullptr;
  dim3 grid, block;
  size_t shared = 0;
  std::shared_ptr<std::vector<uint64_t>> args;
};

// Ended is the result of a launch, with the reason of a failure.
struct Ended {
  Result code = kSuccess;
  std::string why;
};

// run runs all blocks.
Ended run(const Launch &l);
// before runs what the blocks do before they wait for the kernel before.
Ended before(const Launch &l);

struct Stream;
struct Event;

// Work is one item of a stream.
struct Work {
  enum Kind { kKernel, kCopy, kFill, kRecord, kAwait, kHost } kind = kKernel;
  Launch launch;
  bool dependent = false;  // the kernel may begin before the work before it has ended
  uint64_t to = 0, from = 0;
  bool to_device = false, from_device = false;
  size_t n = 0;
  unsigned char byte = 0;
  std::shared_ptr<std::vector<char>> staged;  // of memory that is not pinned
  Event *event = nullptr;
  uint64_t turn = 0;  // of the event: the number of the recording
  const char *(*host)(void *) = nullptr;  // a library's function: it returns null when it has ended, "" to be called again, or the reason of a failure
  void *data = nullptr;
};

struct Graph {
  std::vector<Work> work;
  long taken = 0;
};

struct Stream {
  std::vector<Work> queue;
  size_t head = 0;
  // Of a capture: the graph, the stream that began it, and whether it failed.
  Graph *capture = nullptr;
  Stream *origin = nullptr;
  bool broken = false;
  std::set<Stream *> joined;  // of the origin: streams whose work it does not wait for yet
  bool kernel = false;            // its last item is a kernel
  bool reported = false;          // Query has reported that it is not ready
  bool busy = false;              // its next item is being run
};
extern std::set<Stream *> streams;

struct Event {
  uint64_t recorded = 0, happened = 0;
  Stream *on = nullptr;
  bool captured = false;
  double at = 0;  // milliseconds
};

// give adds work to the stream: it runs at once, later, or in the graph that the stream
// captures.
Result give(void *stream, Work w);
// behind_kernel reports whether the stream's last item is a kernel.
bool behind_kernel(void *stream);
// finish runs the stream's work, and what that waits for, up to an item that waits for another
// rank.
Result finish(Stream *s);
// complete runs all of the stream's work.
Result complete(Stream *s);
// finish_all does the same as finish for all streams. While other ranks get further, it lets them, with
// the lock released.
void finish_all();
Stream *stream_of(void *handle);

}  // namespace driver
