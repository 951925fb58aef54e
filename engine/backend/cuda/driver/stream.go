//go:build linux && cgo && cuda

package driver

import (
	"time"
	"unsafe"

	"gorgonia.org/cu"
)

// Stream is work in order.
type Stream struct {
	ctx *Context
	s   cu.Stream
}

// Stream makes a stream that waits for no other.
func (c *Context) Stream() (*Stream, error) {
	s, err := cu.MakeStream(cu.NonBlocking)
	return &Stream{c, s}, c.wrap("cuStreamCreate", err)
}

// Close ends the stream when its work is done.
func (s *Stream) Close() error { return s.ctx.wrap("cuStreamDestroy", s.s.Destroy()) }

// ToDevice copies n bytes from the host. Memory that is not Pinned is read before the call
// returns.
func (s *Stream) ToDevice(dst Address, src unsafe.Pointer, n int64) error {
	return s.ctx.wrap("cuMemcpyHtoDAsync", cu.MemcpyHtoDAsync(cu.DevicePtr(dst), src, n, s.s))
}

// RowsToDevice copies the first width bytes of rows that lie pitch bytes apart, there as on the host,
// where they are Pinned.
func (s *Stream) RowsToDevice(dst Address, src unsafe.Pointer, width, pitch, rows int64) error {
	return failed("cuMemcpy2DAsync", rowsToDevice(dst, src, width, pitch, rows, s.s), s.ctx.name)
}

// FromDevice copies n bytes to the host: Pinned memory, or such as Wait outlives.
func (s *Stream) FromDevice(dst unsafe.Pointer, src Address, n int64) error {
	return s.ctx.wrap("cuMemcpyDtoHAsync", cu.MemcpyDtoHAsync(dst, cu.DevicePtr(src), n, s.s))
}

// Fill sets n bytes.
func (s *Stream) Fill(dst Address, b byte, n int64) error {
	return s.ctx.wrap("cuMemsetD8Async", cu.MemsetD8Async(cu.DevicePtr(dst), b, n, s.s))
}

// Record has the event happen when the stream's work so far is done.
func (s *Stream) Record(e *Event) error { return s.ctx.wrap("cuEventRecord", e.e.Record(s.s)) }

// WaitFor has the stream's later work wait for the event as it was last recorded.
func (s *Stream) WaitFor(e *Event) error { return s.ctx.wrap("cuStreamWaitEvent", s.s.Wait(e.e, 0)) }

// Wait blocks until the stream's work is done; its error is the work's, or *HungError where that
// takes longer than limit.
func (s *Stream) Wait(limit time.Duration) error {
	return s.ctx.waited("cuStreamQuery", wait(cu.Event{}, s.s, limit), limit)
}

// Query says whether the stream's work is done.
func (s *Stream) Query() (bool, error) { return s.ctx.query("cuStreamQuery", s.s.Query()) }

// Event is a moment in a stream's work.
type Event struct {
	ctx *Context
	e   cu.Event
}

// Event makes an event without a time.
func (c *Context) Event() (*Event, error) { return c.event(cu.DisableTiming) }

// Timer makes an event that Since works on.
func (c *Context) Timer() (*Event, error) { return c.event(cu.DefaultEvent) }

func (c *Context) event(flags cu.EventFlags) (*Event, error) {
	e, err := cu.MakeEvent(flags)
	return &Event{c, e}, c.wrap("cuEventCreate", err)
}

// Close gives the event back.
func (e *Event) Close() error { return e.ctx.wrap("cuEventDestroy", cu.DestroyEvent(&e.e)) }

// Wait blocks until the event has happened; *HungError where that takes longer than limit.
func (e *Event) Wait(limit time.Duration) error {
	return e.ctx.waited("cuEventQuery", wait(e.e, cu.Stream{}, limit), limit)
}

// Query says whether the event has happened.
func (e *Event) Query() (bool, error) { return e.ctx.query("cuEventQuery", e.e.Query()) }

// Since is the time on the device from one Timer to another; both have happened.
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
