package runner

import (
	"fmt"

	"vapp.dev/engine/backend"
	"vapp.dev/engine/sched"
)

// tower runs the encoder of items. The zero value encodes nothing.
type tower struct {
	dev    backend.Encoder
	exe    backend.Executable
	busy   bool        // an encoding was started whose end was not waited for
	newest *sched.Step // the step that started it
}

// compile prepares the encoder's program.
func (t *tower) compile(dev backend.Device, p *backend.Program) error {
	e, ok := dev.(backend.Encoder)
	if !ok || !p.Encodes() {
		return fmt.Errorf("runner: program %s: %w: the device runs steps only", p.Name, backend.ErrUnsupported)
	}
	exe, err := dev.Compile(p)
	t.dev, t.exe = e, exe
	return err
}

// run starts the encodings of a step, in order. The device has input buffers of one item, so each but
// the first of a device without work waits for the one before it.
func (t *tower) run(s *sched.Step) error {
	if t.dev == nil {
		return fmt.Errorf("runner: a step encodes %d items: %w: there is no encoder", len(s.Encodes), backend.ErrUnsupported)
	}
	for _, e := range s.Encodes {
		if err := t.settle(); err != nil {
			return err
		}
		in := t.dev.Item()
		copy(in.Colours, e.Item.Colours[:])
		copy(in.Pixels, e.Item.Pixels)
		copy(in.Across, e.Item.Across)
		copy(in.Down, e.Item.Down)
		if err := t.dev.Encode(t.exe, backend.EncodeBinding{Patches: len(e.Item.Across), Rows: e.Item.Tokens, At: int32(e.At)}); err != nil {
			return err
		}
		t.busy, t.newest = true, s
	}
	return nil
}

// wait returns the error of a step's encodings, once the step has run. If a later step has started one
// since, that step has waited for them.
func (t *tower) wait(s *sched.Step) error {
	if t.newest != s {
		return nil
	}
	return t.settle()
}

// settle waits for the encoding that was started last.
func (t *tower) settle() error {
	if !t.busy {
		return nil
	}
	t.busy, t.newest = false, nil
	return t.dev.WaitItem()
}
