//go:build linux && cgo && cuda

package cuda

import (
	"errors"
	"fmt"
	"time"
	"unsafe"

	"vapp.dev/engine/backend"
	"vapp.dev/engine/backend/cuda/driver"
)

var _ backend.Encoder = (*device)(nil)

// encoder is the input of encoder programs and the state of their launch. The input exists twice, as
// step buffers do: pinned on the host, and in the Item arena.
type encoder struct {
	set
	in   *backend.ItemInput // nil: none
	host []byte             // what in was carved from
}

// openEncoder places the input in pinned host memory.
func (d *device) openEncoder() (err error) {
	n, size := &d.encoder, d.r.Encoder.ItemBytes()
	if size == 0 {
		return nil
	}
	if n.host, _, err = d.ctx.Pinned(d.r.Arenas[backend.Item]); err != nil {
		return err
	}
	clear(n.host)
	n.in = d.r.Encoder.Carve(n.host[:size])
	if n.copied, err = d.ctx.Event(); err != nil {
		return err
	}
	n.done, err = d.ctx.Event()
	return err
}

// itemAddresses returns the device addresses of an encoder program's operands.
func (d *device) itemAddresses() addresses {
	n, twin := &d.encoder, d.arenas[backend.Item]
	a := addresses{weights: d.offsets, arenas: d.arenas, shape: d.r.Step}
	a.step.first, a.step.positions = placeIn(n.host, twin, n.in.First), placeIn(n.host, twin, n.in.Positions)
	a.item = itemAddresses{
		colours: placeIn(n.host, twin, n.in.Colours), across: placeIn(n.host, twin, n.in.Across), down: placeIn(n.host, twin, n.in.Down), at: placeIn(n.host, twin, n.in.At),
	}
	return a
}

// Item returns the encoder's input.
func (d *device) Item() *backend.ItemInput { return d.encoder.in }

// Encode checks the item, queues the copy of its input, and launches the list of its variant behind the
// steps. It does not wait.
func (d *device) Encode(e backend.Executable, b backend.EncodeBinding) error {
	x, ok := e.(*executable)
	if !ok || x.d != d {
		return fmt.Errorf("backend %s: Encode of a program that another device compiled", name)
	}
	if d.ctx == nil {
		return errClosed
	}
	if d.encoder.running {
		return &backend.StepError{Field: "Encode", Why: "the item before is still running: WaitItem first"}
	}
	if err := d.encoder.in.Check(x.p, d.r.Encoder, b); err != nil {
		return err
	}
	if err := d.enter(); err != nil {
		return err
	}
	return d.leave(d.encode(x, b))
}

func (d *device) encode(x *executable, b backend.EncodeBinding) error {
	if err := d.staging.close(d.ctx); err != nil { // weights are loaded: their staging memory is free
		return err
	}
	n := &d.encoder
	n.in.First[0], n.in.First[1], n.in.At[0] = 0, int32(b.Patches), b.At
	n.limit = hangTimeout + time.Duration(b.Patches)*hangTimeoutPerToken
	if err := d.enqueueItem(x, b); err != nil {
		return d.fail(err) // queued work may still read the input
	}
	n.running = true
	return nil
}

// enqueueItem queues the copy of the item's colours and patches, and of everything behind all patches, and the
// launches.
func (d *device) enqueueItem(x *executable, b backend.EncodeBinding) error {
	n := &d.encoder
	end, tail := offset(n.host, n.in.Pixels)+int64(b.Patches)*int64(d.r.Encoder.Cols), offset(n.host, n.in.Across)
	for _, part := range [][2]int64{{0, end}, {tail, d.r.Encoder.ItemBytes()}} {
		if err := d.in.ToDevice(d.arenas[backend.Item]+driver.Address(part[0]), unsafe.Pointer(&n.host[part[0]]), part[1]-part[0]); err != nil {
			return err
		}
	}
	if err := d.in.Record(n.copied); err != nil {
		return err
	}
	if err := d.work.WaitFor(n.copied); err != nil {
		return err
	}
	of := backend.Binding{Tokens: b.Patches, Seqs: 1, Samples: b.Rows}
	i := x.holds(of)
	if i < 0 {
		return errNoList(of)
	}
	list := x.lists[0][i]
	if err := d.work.run(list, 0, list.Len(), bound(of.Tokens, of.Seqs, of.Samples), n.limit); err != nil {
		return err
	}
	return d.work.Record(n.done)
}

// WaitItem blocks until the last Encode has finished, or until the device has not responded for longer
// than any item takes.
func (d *device) WaitItem() error {
	if d.ctx == nil {
		return errClosed
	}
	n := &d.encoder
	if !n.running {
		return nil
	}
	n.running = false
	if err := d.enter(); err != nil {
		return err
	}
	return d.leave(d.work.wait.until(n.done, n.limit))
}

// close frees the input and its events.
func (n *encoder) close(ctx *driver.Context) error {
	var errs []error
	for _, e := range []*driver.Event{n.copied, n.done} {
		if e != nil {
			errs = append(errs, e.Close())
		}
	}
	if n.host != nil {
		errs = append(errs, ctx.FreePinned(n.host))
	}
	*n = encoder{}
	return errors.Join(errs...)
}
