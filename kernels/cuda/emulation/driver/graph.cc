// Captures and graphs.
#include "driver.h"

using namespace driver;

namespace {

thread_local Stream *capturing = nullptr;  // by this thread

}  // namespace

namespace driver {

Result unsafe() {
  if (Result r = usable()) return r;
  if (capturing != nullptr && capturing->capture != nullptr) {
    capturing->broken = true;
    return kCaptureUnsupported;
  }
  return kSuccess;
}

}  // namespace driver

API int cuStreamBeginCapture_v2(void *handle, int) {
  CALL("cuStreamBeginCapture");
  if (Result r = usable()) return r;
  Stream *s = stream_of(handle);
  if (handle == nullptr) return kCaptureUnsupported;
  if (s->capture != nullptr) return kCaptureMerge;
  s->capture = new Graph;
  s->origin = s;
  s->broken = false;
  s->joined.clear();
  capturing = s;
  return kSuccess;
}
API int cuStreamEndCapture(void *handle, void **graph) {
  std::lock_guard<std::recursive_mutex> lock(everything);
  *graph = nullptr;
  Stream *s = stream_of(handle);
  if (s->capture == nullptr) return kInvalidValue;
  if (s->origin != s) return kCaptureUnmatched;
  if (capturing != s) return kWrongThread;
  Graph *g = s->capture;
  for (Stream *other : streams)
    if (other->capture == g) other->capture = nullptr;
  capturing = nullptr;
  Result r = called("cuStreamEndCapture");  // its error also ends the capture
  if (r == kSuccess) r = s->broken ? kCaptureInvalidated : !s->joined.empty() ? kCaptureUnjoined : context.sticky;
  if (r != kSuccess) {
    delete g;
    return r;
  }
  *graph = g;
  return kSuccess;
}
API int cuGraphGetNodes(void *graph, void **nodes, size_t *n) {
  if (nodes != nullptr) return kInvalidValue;
  *n = ((Graph *)graph)->work.size();
  return kSuccess;
}
API int cuGraphInstantiateWithFlags(void **exec, void *graph, unsigned long long) {
  CALL("cuGraphInstantiate");
  if (Result r = usable()) return r;
  Graph *g = new Graph(*(Graph *)graph);
  g->taken = long(g->work.size()) * settings.graph;
  if (g->taken > settings.memory - settings.held - context.taken) {
    delete g;
    return kOutOfMemory;
  }
  context.taken += g->taken;
  *exec = g;
  return kSuccess;
}
API int cuGraphUpload(void *, void *) { return usable(); }
API int cuGraphLaunch(void *exec, void *stream) {
  CALL("cuGraphLaunch");
  if (Result r = usable()) return r;
  if (stream_of(stream)->capture != nullptr) return kCaptureUnsupported;
  for (const Work &w : ((Graph *)exec)->work)
    if (Result r = give(stream, w)) return r;
  return kSuccess;
}
API int cuGraphDestroy(void *graph) {
  delete (Graph *)graph;
  return kSuccess;
}
API int cuGraphExecDestroy(void *exec) {
  CALL("cuGraphExecDestroy");
  forever("cuGraphExecDestroy");
  finish_all();
  context.taken -= ((Graph *)exec)->taken;
  delete (Graph *)exec;
  return kSuccess;
}
