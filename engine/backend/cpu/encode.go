//go:build cgo && linux

package cpu

import "C"

import (
	"fmt"

	"vapp.dev/engine/backend"
)

var _ backend.Encoder = (*device)(nil)

// encoder is the input of encoder programs and the state of their launch.
type encoder struct {
	in   *backend.ItemInput // nil: none
	step backend.Step       // of the one sequence of an item
	set  set
}

// openEncoder carves the input out of the Item arena.
func (d *device) openEncoder() {
	if n := d.r.Encoder.ItemBytes(); n > 0 {
		in := d.r.Encoder.Carve(d.arenas[backend.Item].slice(0, n))
		d.encoder.in, d.encoder.step = in, backend.Step{First: in.First, Positions: in.Positions}
	}
}

// Item returns the encoder's input.
func (d *device) Item() *backend.ItemInput { return d.encoder.in }

// Encode checks the item and passes the program's phases to the pool.
func (d *device) Encode(e backend.Executable, b backend.EncodeBinding) error {
	x, ok := e.(*executable)
	if !ok || x.d != d {
		return fmt.Errorf("backend %s: Encode of a program that another device compiled", name)
	}
	if d.pool == nil {
		return errClosed
	}
	st, in := &d.encoder.set, d.encoder.in
	if st.running {
		return &backend.StepError{Field: "Encode", Why: "the item before is still running: WaitItem first"}
	}
	if err := in.Check(x.p, d.r.Encoder, b); err != nil {
		return err
	}
	in.First[0], in.First[1], in.At[0] = 0, int32(b.Patches), b.At
	st.running = true
	bound := backend.Binding{Tokens: b.Patches, Seqs: 1, Samples: b.Rows}
	if d.ranks != nil {
		st.run = run{x, &x.lists[0], bound, st.run.done}
		d.ranks <- &st.run
		return nil
	}
	st.number = d.launch(x, x.lists[0], bound)
	return nil
}

// WaitItem blocks until the last Encode has finished. Its error is that of a group.
func (d *device) WaitItem() error {
	if d.pool == nil {
		return errClosed
	}
	d.finish(&d.encoder.set)
	return d.encoder.set.err
}
