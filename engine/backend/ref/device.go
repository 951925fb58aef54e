package ref

import (
	"errors"
	"fmt"
	"unsafe"

	"vapp.dev/engine/backend"
)

// device owns the arenas and the goroutines that compute.
type device struct {
	layout  layout
	r       backend.Reservation
	arenas  [backend.NumArenas][]byte
	shared  *sharing // the users of the Weights arena
	weights []weight
	steps   []*backend.Step
	sets    []set
	encoder encoder
	queue   chan *launch
	pool    *pool
}

func open(l layout, s backend.Settings, r backend.Reservation) (*device, error) {
	d := &device{layout: l, r: r}
	for _, p := range r.Programs {
		if err := errors.Join(backend.CheckGroup(name, p, l.group), l.Runs(r.Weights, p)); err != nil {
			return nil, err
		}
		n, err := l.Workspace(p)
		if err != nil {
			return nil, err
		}
		if n > r.Arenas[backend.Workspace] || p.Scratch > r.Arenas[backend.Scratch] {
			return nil, short("program "+p.Name, max(n, p.Scratch), min(r.Arenas[backend.Workspace], r.Arenas[backend.Scratch]))
		}
	}
	if need, have := r.Encoder.ItemBytes()+r.Encoder.EncodedBytes(), r.Arenas[backend.Item]+r.Arenas[backend.Encoded]; need > have {
		return nil, short("the encoder", need, have)
	}
	if n := r.Step.Bytes(); n > r.Arenas[backend.StepIO] {
		return nil, short("step buffers", n, r.Arenas[backend.StepIO])
	}
	for a, n := range r.Arenas {
		if n != l.Round(n) {
			return nil, short(fmt.Sprintf("the %v arena, rounded,", backend.Arena(a)), l.Round(n), n)
		}
		if backend.Arena(a) == backend.Weights && s.Weights != nil {
			continue
		}
		d.arenas[a] = make([]byte, n)
		if n > 0 && uintptr(unsafe.Pointer(&d.arenas[a][0]))%64 != 0 {
			return nil, fmt.Errorf("backend %s: Go's heap gave %d bytes that are not aligned to 64", name, n)
		}
	}
	if err := d.share(s); err != nil {
		return nil, err
	}
	var at int64
	for i, p := range r.Packed {
		if at+p.Bytes > int64(len(d.arenas[backend.Weights])) {
			return nil, errors.Join(short("weight "+r.Weights[i].Name, at+p.Bytes, r.Arenas[backend.Weights]), d.shared.Leave())
		}
		w, err := l.spec(r.Weights[i])
		if err != nil {
			return nil, errors.Join(err, d.shared.Leave())
		}
		d.weights = append(d.weights, newWeight(w, p, d.arenas[backend.Weights][at:at+p.Bytes]))
		at += p.Bytes
	}
	size := r.Step.SetBytes()
	d.steps, d.sets = make([]*backend.Step, r.Step.NumSets()), make([]set, r.Step.NumSets())
	for i := range d.steps {
		d.steps[i] = r.Step.Carve(d.arenas[backend.StepIO][int64(i)*size : int64(i+1)*size])
		d.sets[i].done = make(chan error, 1)
	}
	d.encoder = encoder{in: r.Encoder.Carve(d.arenas[backend.Item]), set: set{done: make(chan error, 1)}}
	d.pool = newPool(l.threads)
	d.queue = make(chan *launch, len(d.sets)+1)
	go d.serve(d.queue)
	return d, nil
}

// short returns the error of a reservation that is too small; need and have are bytes.
func short(what string, need, have int64) error {
	return fmt.Errorf("backend %s: reservation: %s needs %d bytes, there are %d", name, what, need, have)
}

// Step returns a set's buffers.
func (d *device) Step(set int) *backend.Step { return d.steps[set] }

// Usage returns the size of the arenas' slices.
func (d *device) Usage() [backend.NumArenas]int64 {
	var u [backend.NumArenas]int64
	for a, m := range d.arenas {
		u[a] = int64(cap(m))
	}
	return u
}

// Move waits for all launches, then copies pages in order.
func (d *device) Move(moves []backend.PageMove) error {
	kv, swap := d.arenas[backend.KV], d.arenas[backend.Swap]
	d.drain()
	for _, m := range moves {
		if err := m.Check(d.r.Classes, int64(len(kv)), int64(len(swap))); err != nil {
			return fmt.Errorf("backend %s: %w", name, err)
		}
		c := d.r.Classes[m.Class]
		page, slot := kv[c.Address(m.Page):][:c.PageBytes()], swap[c.Address(m.Slot):][:c.PageBytes()]
		if m.Out {
			copy(slot, page)
		} else {
			copy(page, slot)
		}
	}
	return nil
}

// Scratch implements backend.Inspector.
func (d *device) Scratch(v backend.Value, p *backend.Program) []byte {
	in := p.Values[v]
	n := in.Format.Bytes(int64(p.Rows(in.Rows)) * int64(in.Cols))
	return d.arenas[backend.Scratch][in.Offset : in.Offset+n]
}

// Close waits for running launches, stops the goroutines and releases the arenas; weights that others use stay.
func (d *device) Close() error {
	if d.queue == nil {
		return nil
	}
	for i := range d.sets {
		d.Wait(i)
	}
	d.WaitItem()
	close(d.queue)
	d.pool.close()
	d.queue, d.arenas, d.weights = nil, [backend.NumArenas][]byte{}, nil
	return d.shared.Leave()
}
