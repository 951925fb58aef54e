//go:build linux && cgo && cuda

package driver

/*
#cgo LDFLAGS: -ldl -lpthread
#cgo noescape vapp_list_run
#cgo nocallback vapp_list_run
#cgo noescape vapp_rows_to_device
#cgo nocallback vapp_rows_to_device
#cgo noescape vapp_wait
#cgo nocallback vapp_wait
#include "native.h"
#include <stdlib.h>
#include <string.h>

static int emulated(const char *settings) {
  int (*f)(const char *) = (int (*)(const char *))vapp_cuda_entry("vapp_emulated");
  return f ? f(settings) : -1;
}

static long emulated_count(const char *what) {
  long (*f)(const char *) = (long (*)(const char *))vapp_cuda_entry("vapp_emulated_count");
  return f ? f(what) : -1;
}
*/
import "C"

import (
	"time"
	"unsafe"

	"gorgonia.org/cu"
)

// callStatus is the offset of the statuses of a Call among the driver's.
const callStatus = C.VAPP_CALL_STATUS

// status returns the result of the driver library's cuInit. missing is the reason why the
// library could not be loaded, or "".
func status() (code int, missing string) {
	code = int(C.vapp_cuda_status())
	return code, C.GoString(C.vapp_cuda_missing())
}

// emulate passes settings to an emulated driver and returns its code; −1 with a real driver.
func emulate(settings string) int {
	s := C.CString(settings)
	defer C.free(unsafe.Pointer(s))
	return int(C.emulated(s))
}

// emulatedCount returns a count of an emulated driver; −1 with a real driver.
func emulatedCount(what string) int64 {
	s := C.CString(what)
	defer C.free(unsafe.Pointer(s))
	return int64(C.emulated_count(s))
}

func codeName(code int) string {
	var s *C.char
	if C.cuGetErrorName(C.CUresult(code), &s) != C.CUDA_SUCCESS || s == nil {
		return ""
	}
	return C.GoString(s)
}

func stream(s cu.Stream) C.CUstream       { return *(*C.CUstream)(unsafe.Pointer(&s)) }
func event(e cu.Event) C.CUevent          { return *(*C.CUevent)(unsafe.Pointer(&e)) }
func function(f cu.Function) C.CUfunction { return *(*C.CUfunction)(unsafe.Pointer(&f)) }

// hostAlloc allocates pinned memory that every context can access, and returns its device
// address.
func hostAlloc(n int64) (host unsafe.Pointer, device Address, code int) {
	if r := C.cuMemHostAlloc(&host, C.size_t(n), C.CU_MEMHOSTALLOC_PORTABLE|C.CU_MEMHOSTALLOC_DEVICEMAP); r != C.CUDA_SUCCESS {
		return nil, 0, int(r)
	}
	var d C.CUdeviceptr
	if r := C.cuMemHostGetDevicePointer(&d, host, 0); r != C.CUDA_SUCCESS {
		C.cuMemFreeHost(host)
		return nil, 0, int(r)
	}
	return host, Address(d), 0
}

// freeMemory returns a device's free memory, without a context; −1: unknown.
func freeMemory(uuid string) int64 {
	s := C.CString(uuid)
	defer C.free(unsafe.Pointer(s))
	return int64(C.vapp_free_memory(s))
}

func rowsToDevice(to Address, from unsafe.Pointer, width, pitch, rows int64, s cu.Stream) int {
	return int(C.vapp_rows_to_device(C.CUdeviceptr(to), from, C.size_t(width), C.size_t(pitch), C.size_t(rows), stream(s)))
}

// loadFunction loads a kernel's code onto the device now instead of at its first launch.
func loadFunction(f cu.Function) int { return int(C.cuFuncLoad(function(f))) }

// wait waits for an event, or for a stream if e is zero. codeNotReady: the limit passed.
func wait(e cu.Event, s cu.Stream, limit time.Duration) int {
	return int(C.vapp_wait(event(e), stream(s), C.int64_t(limit)))
}

func setSharedMax(f cu.Function, n int) int {
	return int(C.cuFuncSetAttribute(function(f), C.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, C.int(n)))
}

func attributes(f cu.Function) (a Attributes, code int) {
	for _, q := range []struct {
		of C.CUfunction_attribute
		to *int
	}{
		{C.CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK, &a.MaxThreads},
		{C.CU_FUNC_ATTRIBUTE_NUM_REGS, &a.Registers},
		{C.CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES, &a.Shared},
		{C.CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES, &a.Local},
		{C.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, &a.SharedMax},
	} {
		var v C.int
		if r := C.cuFuncGetAttribute(&v, q.of, function(f)); r != C.CUDA_SUCCESS {
			return a, int(r)
		}
		*q.to = int(v)
	}
	return a, 0
}

// argumentBytes returns the size of a kernel's only parameter; −1 if it has several.
func argumentBytes(f cu.Function) (n int, code int) {
	var offset, size C.size_t
	if r := C.cuFuncGetParamInfo(function(f), 0, &offset, &size); r != C.CUDA_SUCCESS {
		return 0, int(r)
	}
	n = int(size)
	if C.cuFuncGetParamInfo(function(f), 1, &offset, &size) == C.CUDA_SUCCESS {
		n = -1
	}
	return n, 0
}

func occupancy(f cu.Function, threads, shared int) (blocks int, code int) {
	var n C.int
	r := C.cuOccupancyMaxActiveBlocksPerMultiprocessor(&n, function(f), C.int(threads), C.size_t(shared))
	return int(n), int(r)
}

// beginCapture starts recording the stream's work. Until endCapture, calls of this thread
// that a capture does not allow fail.
func beginCapture(s cu.Stream) int {
	return int(C.cuStreamBeginCapture(stream(s), C.CU_STREAM_CAPTURE_MODE_THREAD_LOCAL))
}

// endCapture returns the recorded work, a CUgraph.
func endCapture(s cu.Stream) (graph unsafe.Pointer, code int) {
	var g C.CUgraph
	r := C.cuStreamEndCapture(stream(s), &g)
	return unsafe.Pointer(g), int(r)
}

func graphNodes(graph unsafe.Pointer) (n int, code int) {
	var count C.size_t
	r := C.cuGraphGetNodes(C.CUgraph(graph), nil, &count)
	return int(count), int(r)
}

func destroyGraph(graph unsafe.Pointer) { C.cuGraphDestroy(C.CUgraph(graph)) }

// instantiate returns a CUgraphExec of a CUgraph.
func instantiate(graph unsafe.Pointer) (exec unsafe.Pointer, code int) {
	var x C.CUgraphExec
	r := C.cuGraphInstantiateWithFlags(&x, C.CUgraph(graph), 0)
	return unsafe.Pointer(x), int(r)
}

func launchGraph(exec unsafe.Pointer, s cu.Stream) int {
	return int(C.cuGraphLaunch(C.CUgraphExec(exec), stream(s)))
}

func destroyExec(exec unsafe.Pointer) int { return int(C.cuGraphExecDestroy(C.CUgraphExec(exec))) }

// list is a list of launches in C memory.
type list struct {
	c   *C.vapp_list
	all unsafe.Pointer
}

// newList copies launches, symbols and arguments to one block of C memory. dependent: kernels behind kernels may begin
// before those have ended.
func newList(launches []Launch, dependent bool) list {
	const align = 16
	symbols, args := 0, 0
	for _, l := range launches {
		symbols += len(l.Symbols)
		args += (len(l.Args) + align - 1) / align * align
	}
	head := (int(unsafe.Sizeof(C.vapp_list{})) + align - 1) / align * align
	at := head + args + len(launches)*int(unsafe.Sizeof(C.vapp_launch{}))
	all := C.calloc(1, C.size_t(at+symbols*int(unsafe.Sizeof(C.vapp_symbol{}))))
	out := list{(*C.vapp_list)(all), all}
	out.c.launches = (*C.vapp_launch)(unsafe.Add(all, head+args))
	out.c.symbols = (*C.vapp_symbol)(unsafe.Add(all, at))
	if dependent {
		out.c.dependent = 1
	}
	ls := unsafe.Slice(out.c.launches, len(launches))
	ss := unsafe.Slice(out.c.symbols, symbols)
	next, used := 0, 0
	for i, l := range launches {
		c := &ls[i]
		switch {
		case l.Product != nil:
			c.product = l.Product.c
		case l.Call != nil:
			c.call, c.data = C.vapp_call(l.Call.Run), l.Call.Data
		default:
			c.function = function(l.Function.f)
		}
		c.args = unsafe.Add(all, head+used)
		copy(unsafe.Slice((*byte)(c.args), len(l.Args)), l.Args)
		used += (len(l.Args) + align - 1) / align * align
		for d := range 3 {
			c.grid[d], c.block[d] = C.uint32_t(l.Blocks[d]), C.uint32_t(l.Threads[d])
		}
		c.shared, c.first = C.uint32_t(l.Shared), C.uint32_t(next)
		for _, s := range l.Symbols {
			ss[next] = C.vapp_symbol{C.int32_t(s.Of), C.int32_t(s.At), C.int32_t(s.Dim), C.int32_t(s.Times), C.int32_t(s.Over), C.int32_t(s.Plus)}
			next++
		}
		c.end = C.uint32_t(next)
	}
	return out
}

// args returns the bytes of a launch's arguments, in place.
func (l list) args(i, n int) []byte {
	c := (*C.vapp_launch)(unsafe.Add(unsafe.Pointer(l.c.launches), i*int(unsafe.Sizeof(C.vapp_launch{}))))
	return unsafe.Slice((*byte)(c.args), n)
}

// run launches [from, to); failed is the launch that code belongs to.
func (l list) run(s cu.Stream, from, to int, bound *[NumBound]int32) (failed, code int) {
	var f C.int
	r := C.vapp_list_run(l.c, C.int(from), C.int(to), (*C.int32_t)(unsafe.Pointer(bound)), stream(s), &f)
	return int(f), int(r)
}

// load runs the products among [from, to) that have not run yet.
func (l list) load(s cu.Stream, from, to int, bound *[NumBound]int32) (failed, code int) {
	var f C.int
	r := C.vapp_list_load(l.c, C.int(from), C.int(to), (*C.int32_t)(unsafe.Pointer(bound)), stream(s), &f)
	return int(f), int(r)
}

func (l list) free() { C.free(l.all) }
