package ref

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

// Item returns the encoder's input.
func (d *device) Item() *backend.ItemInput { return d.encoder.in }

// Encode checks the item and queues it behind the launches.
func (d *device) Encode(e backend.Executable, b backend.EncodeBinding) error {
	x, ok := e.(*executable)
	if !ok || x.d != d {
		return fmt.Errorf("backend %s: Encode of a program that another device compiled", name)
	}
	if d.queue == nil {
		return fmt.Errorf("backend %s: Encode after Close", name)
	}
	n := &d.encoder
	if n.set.running {
		return &backend.StepError{Field: "Encode", Why: "the item before is still running: WaitItem first"}
	}
	if err := n.in.Check(x.p, d.r.Encoder, b); err != nil {
		return err
	}
	n.in.First[0], n.in.First[1] = 0, int32(b.Patches)
	n.step = backend.Step{First: n.in.First, Positions: n.in.Positions}
	n.set.launch = launch{d: d, e: x, b: backend.Binding{Tokens: b.Patches, Seqs: 1, Samples: b.Rows}, s: &n.step, at: b.At, set: &n.set}
	n.set.running = true
	d.queue <- &n.set.launch
	return nil
}

// WaitItem returns the error of the last Encode.
func (d *device) WaitItem() error {
	n := &d.encoder.set
	if n.running {
		n.err = <-n.done
		n.running = false
	}
	return n.err
}
