// Streams and events, and the order of their work.
#include "driver.h"

#include <chrono>
#include <unistd.h>

using namespace driver;

namespace driver {

std::set<Stream *> streams;

namespace {

Stream standard;  // stream 0

// fail ends the context.
void fail(Result code, const std::string &why) {
  if (!why.empty()) fprintf(stderr, "emulated driver: %s\n", why.c_str());
  if (!context.sticky) context.sticky = code;
}

void do_kernel(const Work &w) {
  Result fault = called("kernel");
  if (!fault) fault = called(w.launch.function->kernel->name);
  if (fault) {
    context.hung = fault == kNotReady;
    if (!context.hung) fail(fault, "");
    return;
  }
  Ended e = run(w.launch);
  if (e.code != kSuccess) fail(e.code, e.why);
  if (!guards()) fail(kIllegalAddress, std::string(w.launch.function->kernel->name) + ": wrote beyond an allocation");
}

bool step(Stream *s);

// reach runs what a stream waits for, and no more.
void reach(Event *e, uint64_t turn) {
  while (e->happened < turn && step(e->on)) {
  }
}

// perform runs an item. It returns false if the item waits for another rank.
bool perform(const Work &w) {
  if (context.sticky) return true;
  bool there = true;
  switch (w.kind) {
    case Work::kKernel:
      do_kernel(w);
      break;
    case Work::kCopy:
      there = (!w.from_device || inside(w.from, w.n)) && (!w.to_device || inside(w.to, w.n));
      if (there) memmove((void *)w.to, w.staged ? (void *)w.staged->data() : (void *)w.from, w.n);
      break;
    case Work::kFill:
      there = inside(w.to, w.n);
      if (there) memset((void *)w.to, w.byte, w.n);
      break;
    case Work::kRecord:
      w.event->happened = w.turn;
      w.event->at = std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now().time_since_epoch()).count();
      break;
    case Work::kAwait:
      reach(w.event, w.turn);
      return w.event->happened >= w.turn || context.sticky;
    case Work::kHost:
      if (const char *why = w.host(w.data)) {
        if (why[0] == 0) return false;
        fail(kIllegalAddress, why);
      }
      if (!guards()) fail(kIllegalAddress, "a library wrote beyond an allocation");
      break;
  }
  if (!there) fail(kIllegalAddress, "a copy of memory that was freed");
  return true;
}

// step runs one item; false: there is none, or it waits for another rank.
bool step(Stream *s) {
  if (context.hung || s->busy) return false;
  if (s->head == s->queue.size()) {
    s->queue.clear();
    s->head = 0;
    return false;
  }
  Work w = std::move(s->queue[s->head]);
  s->busy = true;
  bool ended = perform(w);
  s->busy = false;
  if (ended)
    s->head++;
  else
    s->queue[s->head] = std::move(w);
  return ended;
}

// advance runs all streams as far as they get. It returns how many items are left.
size_t advance() {
  finish(&standard);
  size_t left = standard.queue.size() - standard.head;
  for (Stream *s : streams) {
    finish(s);
    left += s->queue.size() - s->head;
  }
  return left;
}

// let_others releases the lock for a moment. The caller holds it once.
void let_others() {
  everything.unlock();
  usleep(20);
  everything.lock();
}

}  // namespace

Stream *stream_of(void *handle) { return handle ? (Stream *)handle : &standard; }

Result finish(Stream *s) {
  while (step(s)) {
  }
  return context.sticky;
}

Result complete(Stream *s) {
  for (finish(s); s->head < s->queue.size() && !context.hung; advance()) let_others();
  return context.sticky;
}

void finish_all() {
  constexpr int kIdle = 2000;  // turns of others without an item of any stream
  size_t before = advance();
  for (int idle = 0; before > 0 && !context.hung && idle < kIdle; idle++) {
    let_others();
    size_t left = advance();
    if (left != before) idle = 0;
    before = left;
  }
}

Result give(void *handle, Work w) {
  Stream *s = stream_of(handle);
  if (handle != nullptr && !streams.count(s)) return kInvalidHandle;
  if (s->capture != nullptr) {
    if (s->origin->broken) return kCaptureInvalidated;
    s->capture->work.push_back(std::move(w));
    if (s != s->origin) s->origin->joined.insert(s);
    return kSuccess;
  }
  s->kernel = w.kind == Work::kKernel;
  // As early as can be: what is queued before it runs later if the stream is lazy.
  if (w.dependent && !context.sticky) {
    Ended e = before(w.launch);
    if (e.code != kSuccess) fail(e.code, e.why);
  }
  if (s->queue.size() - s->head >= 1024) forever("a launch behind a thousand others");
  s->reported = false;
  s->queue.push_back(std::move(w));
  // vapp does not use stream 0; nothing waits for it here.
  if (!settings.lazy) finish(s);
  return kSuccess;
}

bool behind_kernel(void *handle) {
  Stream *s = stream_of(handle);
  if (s->capture == nullptr) return s->kernel;
  return !s->capture->work.empty() && s->capture->work.back().kind == Work::kKernel;
}

}  // namespace driver

// vapp_emulated_host adds work of an emulated library to a stream: f is called in its turn, and
// again whenever a graph with it is launched. The stream's later work waits while f returns "".
API int vapp_emulated_host(void *stream, const char *(*f)(void *), void *data) {
  CALL("vapp_emulated_host");
  if (Result r = usable()) return r;
  Work w;
  w.kind = Work::kHost;
  w.host = f;
  w.data = data;
  return give(stream, w);
}
// vapp_emulated_capturing reports whether a stream is being captured.
API int vapp_emulated_capturing(void *stream) {
  std::lock_guard<std::recursive_mutex> lock(everything);
  return stream_of(stream)->capture != nullptr;
}
// vapp_emulated_inside reports whether n bytes are device memory.
API int vapp_emulated_inside(uint64_t at, size_t n) {
  std::lock_guard<std::recursive_mutex> lock(everything);
  return inside(at, n);
}

API int cuStreamCreate(void **s, unsigned) {
  CALL("cuStreamCreate");
  if (Result r = usable()) return r;
  Stream *made = new Stream;
  streams.insert(made);
  *s = made;
  return kSuccess;
}
API int cuStreamDestroy_v2(void *s) {
  CALL("cuStreamDestroy");
  if (!streams.count((Stream *)s)) return kInvalidHandle;
  forever("cuStreamDestroy");
  finish_all();
  streams.erase((Stream *)s);
  delete (Stream *)s;
  return kSuccess;
}
API int cuStreamSynchronize(void *handle) {
  CALL("cuStreamSynchronize");
  if (Result r = usable()) return r;
  Stream *s = stream_of(handle);
  if (s->capture != nullptr) {
    s->origin->broken = true;
    return kCaptureUnsupported;
  }
  forever("cuStreamSynchronize");
  return complete(s);
}
// After new work of a lazy stream, the first query reports that it is not ready.
API int cuStreamQuery(void *handle) {
  CALL("cuStreamQuery");
  if (Result r = usable()) return r;
  Stream *s = stream_of(handle);
  if (s->capture != nullptr) {
    s->origin->broken = true;
    return kCaptureUnsupported;
  }
  if (s->head < s->queue.size() && (!s->reported || context.hung)) {
    s->reported = true;
    return kNotReady;
  }
  Result r = finish(s);
  if (!r && s->head < s->queue.size()) advance();
  return s->head < s->queue.size() ? kNotReady : r;
}
API int cuStreamWaitEvent(void *handle, void *event, unsigned) {
  CALL("cuStreamWaitEvent");
  if (Result r = usable()) return r;
  Stream *s = stream_of(handle);
  Event *e = (Event *)event;
  if (e->captured) {
    Stream *from = e->on;
    if (from == nullptr || from->capture == nullptr) return kCaptureIsolation;
    if (s->capture != nullptr && s->capture != from->capture) return kCaptureMerge;
    s->capture = from->capture;
    s->origin = from->origin;
    s->origin->joined.erase(from);
    if (s != s->origin) s->origin->joined.insert(s);
    return kSuccess;
  }
  if (s->capture != nullptr) {
    s->origin->broken = true;
    return kCaptureIsolation;
  }
  if (e->recorded == 0) return kSuccess;
  Work w;
  w.kind = Work::kAwait;
  w.event = e;
  w.turn = e->recorded;
  return give(handle, w);
}

API int cuEventCreate(void **e, unsigned) {
  CALL("cuEventCreate");
  if (Result r = usable()) return r;
  *e = new Event;
  return kSuccess;
}
API int cuEventDestroy_v2(void *e) {
  CALL("cuEventDestroy");
  finish_all();
  delete (Event *)e;
  return kSuccess;
}
API int cuEventRecord(void *event, void *handle) {
  CALL("cuEventRecord");
  if (Result r = usable()) return r;
  Stream *s = stream_of(handle);
  Event *e = (Event *)event;
  e->on = s;
  e->captured = s->capture != nullptr;
  if (e->captured) return kSuccess;
  Work w;
  w.kind = Work::kRecord;
  w.event = e;
  w.turn = ++e->recorded;
  return give(handle, w);
}
API int cuEventSynchronize(void *event) {
  CALL("cuEventSynchronize");
  if (Result r = usable()) return r;
  Event *e = (Event *)event;
  if (e->captured) return kCapturedEvent;
  if (e->happened < e->recorded) forever("cuEventSynchronize");
  for (reach(e, e->recorded); e->happened < e->recorded && !context.sticky && !context.hung; advance()) let_others();
  return context.sticky;
}
API int cuEventQuery(void *event) {
  CALL("cuEventQuery");
  if (Result r = usable()) return r;
  Event *e = (Event *)event;
  if (e->captured) return kCapturedEvent;
  if (e->happened == e->recorded) return kSuccess;
  if (!e->on->reported) {
    e->on->reported = true;
    return kNotReady;
  }
  reach(e, e->recorded);
  if (context.sticky && !context.hung) return context.sticky;
  if (e->happened < e->recorded) advance();
  return e->happened < e->recorded ? kNotReady : kSuccess;
}
API int cuEventElapsedTime(float *ms, void *start, void *end) {
  Event *a = (Event *)start, *b = (Event *)end;
  if (a->recorded == 0 || b->recorded == 0) return kInvalidHandle;
  if (a->happened != a->recorded || b->happened != b->recorded) return kNotReady;
  *ms = float(b->at - a->at);
  return kSuccess;
}
API int cuEventElapsedTime_v2(float *ms, void *start, void *end) { return cuEventElapsedTime(ms, start, end); }
