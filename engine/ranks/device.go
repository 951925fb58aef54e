package ranks

import (
	"encoding/binary"
	"errors"
	"fmt"

	"vapp.dev/engine/backend"
)

// Places says which rank does what.
type Places struct{ Tensor, Pipeline int } // sizes

// last returns the first rank of the last stage, whose samples are the model's.
func (p Places) last() int { return (p.Pipeline - 1) * p.Tensor }

// samples reports whether a rank samples: those of the last stage.
func (p Places) samples(rank int) bool { return rank >= p.last() }

// Device is rank 0's device. It gives each step to the other ranks before it runs it itself. One goroutine calls
// its methods, as those of other devices.
type Device struct {
	backend.Device
	l       *Leader
	places  Places
	shape   Shape
	encodes []*peer         // the other ranks that encode items
	master  []*backend.Step // with a pipeline: the buffers of all stages' classes; else nil
	number  uint64
	buf     []byte
	flight  []flight // by set
}

// flight is a launch on a set.
type flight struct {
	number  uint64
	binding backend.Binding
	running bool
}

// Capturing is a Device that captures graphs.
type Capturing struct{ *Device }

// Drive returns the device of rank 0 over dev, which it does not own: a *Device or, if dev captures graphs, a *Capturing. whole has the step buffers of the whole pipeline.
func (l *Leader) Drive(dev backend.Device, p Places, shape Shape, whole backend.StepShape) backend.Device {
	sets := whole.NumSets()
	d := &Device{Device: dev, l: l, places: p, shape: shape, encodes: l.encoding(p, whole.Drafts > 0), flight: make([]flight, sets)}
	if p.Pipeline > 1 {
		d.master = make([]*backend.Step, sets)
		for i := range d.master {
			d.master[i] = whole.Carve(make([]byte, whole.SetBytes()))
		}
	}
	l.agreed.expect(p.Tensor)
	if _, ok := dev.(backend.Capturer); ok {
		return &Capturing{d}
	}
	return d
}

// Step returns the buffers that the runner fills.
func (d *Device) Step(set int) *backend.Step {
	if d.places.Pipeline > 1 {
		return d.master[set]
	}
	return d.Device.Step(set)
}

// Launch sends the step to all ranks and starts it.
func (d *Device) Launch(e backend.Executable, b backend.Binding) error {
	d.number++
	f := &d.flight[b.Set]
	f.number, f.binding, f.running = d.number, b, true
	d.buf = appendBlock(d.buf[:0], d.number, d.Step(b.Set), b)
	if err := d.l.toAll(launch, d.buf); err != nil {
		return err
	}
	if d.places.Pipeline > 1 {
		if err := d.shape.read(block{b: d.buf[blockHeader:]}, d.Device.Step(b.Set), b); err != nil {
			return d.fail(err)
		}
	}
	return d.fail(d.Device.Launch(e, b))
}

// Wait waits for the step and, with a pipeline, for what its last stage has sampled.
func (d *Device) Wait(set int) error {
	err := d.Device.Wait(set)
	f := &d.flight[set]
	if err != nil || !f.running {
		return d.fail(err)
	}
	f.running = false
	if d.places.Pipeline > 1 {
		return d.outputs(set)
	}
	if sum, ok := checksum(d.Step(set), f.binding); ok {
		return d.fail(d.l.agreed.report(d.l.name, f.number, sum))
	}
	return d.l.Err()
}

// outputs copies the outputs of the last stage to the set's buffers.
func (d *Device) outputs(set int) error {
	p, f := d.l.peers[d.places.last()], &d.flight[set]
	select {
	case b := <-p.out:
		if n := binary.LittleEndian.Uint64(b); n != f.number {
			return d.fail(&RankError{p.name, fmt.Sprintf("it sent the outputs of step %d instead of %d", n, f.number)})
		}
		if err := readOutputs(b[8:], d.master[set], f.binding); err != nil {
			return d.fail(&RankError{p.name, err.Error()})
		}
		if sum, ok := checksum(d.master[set], f.binding); ok {
			return d.fail(d.l.agreed.report(p.name, f.number, sum))
		}
		return nil
	case <-d.l.stop:
		return d.l.closed()
	}
}

// closed returns the group's error, or that it has ended.
func (l *Leader) closed() error {
	if err := l.Err(); err != nil {
		return err
	}
	return errors.New("ranks: the group has ended")
}

// Move sends page moves to all ranks and does them.
func (d *Device) Move(moves []backend.PageMove) error {
	d.buf = d.buf[:0]
	for _, m := range moves {
		d.buf = appendMove(d.buf, m)
	}
	if err := d.l.toAll(move, d.buf); err != nil {
		return err
	}
	own := moves[:0:0]
	for _, m := range moves {
		if m.Class = d.shape.Own[m.Class]; m.Class >= 0 {
			own = append(own, m)
		}
	}
	return d.fail(d.Device.Move(own))
}

// fail ends the group with an error of this rank. It returns the error of the group.
func (d *Device) fail(err error) error {
	if err == nil {
		return nil
	}
	d.l.Fail(err)
	if first := d.l.Err(); first != nil {
		return first
	}
	return err
}

// Capture captures a graph on all ranks.
func (c *Capturing) Capture(e backend.Executable, set int, g backend.Graph) error {
	d := c.Device
	d.buf = d.buf[:0]
	for _, n := range []int{set, int(g.Kind), g.Tokens, g.Seqs, g.Samples} {
		d.buf = binary.LittleEndian.AppendUint32(d.buf, uint32(n))
	}
	if err := d.l.toAll(capture, d.buf); err != nil {
		return err
	}
	if err := d.Device.(backend.Capturer).Capture(e, set, g); err != nil {
		return d.fail(err)
	}
	return d.l.answers()
}

// GraphBytes returns what rank 0's graphs have taken.
func (c *Capturing) GraphBytes() int64 { return c.Device.Device.(backend.Capturer).GraphBytes() }

// answers waits for the answer of each rank to the last request.
func (l *Leader) answers() error {
	for _, p := range l.peers[1:] {
		select {
		case why := <-p.done:
			if why != "" {
				return &RankError{p.name, why}
			}
		case <-l.stop:
			return l.closed()
		}
	}
	return nil
}

// appendMove appends a page move in 16 bytes.
func appendMove(out []byte, m backend.PageMove) []byte {
	way := uint32(0)
	if m.Out {
		way = 1
	}
	for _, n := range []uint32{uint32(m.Class), way, uint32(m.Page), uint32(m.Slot)} {
		out = binary.LittleEndian.AppendUint32(out, n)
	}
	return out
}

// readMoves returns the moves of a payload in the classes that the rank has.
func (s Shape) readMoves(b []byte, into []backend.PageMove) ([]backend.PageMove, error) {
	if len(b)%16 != 0 {
		return nil, &FrameError{fmt.Sprintf("page moves of %d bytes", len(b))}
	}
	into = into[:0]
	for ; len(b) > 0; b = b[16:] {
		class := binary.LittleEndian.Uint32(b)
		if int64(class) >= int64(s.Classes) {
			return nil, &FrameError{fmt.Sprintf("page move in class %d of %d", class, s.Classes)}
		}
		if own := s.Own[class]; own >= 0 {
			into = append(into, backend.PageMove{Class: own, Out: binary.LittleEndian.Uint32(b[4:]) == 1, Page: int32(binary.LittleEndian.Uint32(b[8:])), Slot: int32(binary.LittleEndian.Uint32(b[12:]))})
		}
	}
	return into, nil
}

// Adapters of all ranks: each reads the files for its own part of the weights.

// ReadAdapter makes all other ranks read an adapter; files, which travels as JSON, says which. The error names the rank.
func (d *Device) ReadAdapter(files any) error {
	if err := d.l.toAll(readAdapter, encode(files)); err != nil {
		return err
	}
	return d.l.answers()
}

// PutAdapter makes all other ranks write the adapter that they have read to a slot, between two steps.
func (d *Device) PutAdapter(slot int) error {
	return d.l.toAll(putAdapter, binary.LittleEndian.AppendUint32(nil, uint32(slot)))
}
