//go:build linux && cgo && cuda

package driver

import (
	"time"
	"unsafe"

	"gorgonia.org/cu"
)

// Stream is a CUDA stream: work that runs in order.
type Stream struct {
	ctx *Context
	s   cu.Stream
}

// Stream returns a new stream that does not wait for the default stream.
func (c *Context) Stream() (*Stream, error) {
	s, err := cu.MakeStream(cu.NonBlocking)
	return &Stream{c, s}, c.wrap("cuStreamCreate", err)
}

// Close destroys the stream when its work is done.
func (s *Stream) Close() error { return s.ctx.wrap("cuStreamDestroy", s.s.Destroy()) }

// ToDevice copies n bytes from the host. If the memory is not Pinned, it is read before the
// call returns.
func (s *Stream) ToDevice(dst Address, src unsafe.Pointer, n int64) error {
	return s.ctx.wrap("cuMemcpyHtoDAsync", cu.MemcpyHtoDAsync(cu.DevicePtr(dst), src, n, s.s))
}

// RowsToDevice copies the first width bytes of each row. Rows are pitch bytes apart on both
// sides. The host memory is Pinned.
func (s *Stream) RowsToDevice(dst Address, src unsafe.Pointer, width, pitch, rows int64) error {
	return failed("cuMemcpy2DAsync", rowsToDevice(dst, src, width, pitch, rows, s.s), s.ctx.name)
}

// FromDevice copies n bytes to the host. The memory is Pinned or stays valid until Wait.
func (s *Stream) FromDevice(dst unsafe.Pointer, src Address, n int64) error {
	return s.ctx.wrap("cuMemcpyDtoHAsync", cu.MemcpyDtoHAsync(dst, cu.DevicePtr(src), n, s.s))
}

// OnDevice copies n bytes within the device.
func (s *Stream) OnDevice(dst, src Address, n int64) error {
	return s.ctx.wrap("cuMemcpyDtoDAsync", cu.MemcpyDtoDAsync(cu.DevicePtr(dst), cu.DevicePtr(src), n, s.s))
}

// Fill sets n bytes.
func (s *Stream) Fill(dst Address, b byte, n int64) error {
	return s.ctx.wrap("cuMemsetD8Async", cu.MemsetD8Async(cu.DevicePtr(dst), b, n, s.s))
}

// Record records the event after the stream's work so far.
func (s *Stream) Record(e *Event) error { return s.ctx.wrap("cuEventRecord", e.e.Record(s.s)) }

// WaitFor makes the stream's later work wait for the last recording of the event.
func (s *Stream) WaitFor(e *Event) error { return s.ctx.wrap("cuStreamWaitEvent", s.s.Wait(e.e, 0)) }

// Wait blocks until the stream's work is done and returns its error, or *HungError after
// limit.
func (s *Stream) Wait(limit time.Duration) error {
	return s.ctx.waited("cuStreamQuery", wait(cu.Event{}, s.s, limit), limit)
}

// Query reports whether the stream's work is done.
func (s *Stream) Query() (bool, error) { return s.ctx.query("cuStreamQuery", s.s.Query()) }

// Event is a CUDA event: a point in a stream's work.
type Event struct {
	ctx *Context
	e   cu.Event
}

// Event returns a new event without timing.
func (c *Context) Event() (*Event, error) { return c.event(cu.DisableTiming) }

// Timer returns a new event with timing, for Since.
func (c *Context) Timer() (*Event, error) { return c.event(cu.DefaultEvent) }

func (c *Context) event(flags cu.EventFlags) (*Event, error) {
	e, err := cu.MakeEvent(flags)
	return &Event{c, e}, c.wrap("cuEventCreate", err)
}

// Close destroys the event.
func (e *Event) Close() error { return e.ctx.wrap("cuEventDestroy", cu.DestroyEvent(&e.e)) }

// Wait blocks until the event has happened; it returns *HungError after limit.
func (e *Event) Wait(limit time.Duration) error {
	return e.ctx.waited("cuEventQuery", wait(e.e, cu.Stream{}, limit), limit)
}

// Query reports whether the event has happened.
func (e *Event) Query() (bool, error) { return e.ctx.query("cuEventQuery", e.e.Query()) }

// Since returns the device time from one Timer to another; both must have happened.
func (e *Event) Since(start *Event) (time.Duration, error) {
	ms, err := start.e.Elapsed(e.e)
	return time.Duration(ms * float64(time.Millisecond)), e.ctx.wrap("cuEventElapsedTime", err)
}

func (c *Context) waited(call string, code int, limit time.Duration) error {
	if code == codeNotReady {
		return &HungError{Device: c.name, Waited: limit}
	}
	return failed(call, code, c.name)
}

func (c *Context) query(call string, err error) (bool, error) {
	if err != nil && code(err) == codeNotReady {
		return false, nil
	}
	return err == nil, c.wrap(call, err)
}
