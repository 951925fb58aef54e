package engine

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"runtime"

	"vapp.dev/engine/backend"
	"vapp.dev/engine/ranks"
)

// Ranks is what rank 0 of several has to run the others.
type Ranks struct {
	Leader *ranks.Leader
	Places ranks.Places
	Close  func() error // closes what connects the ranks, when the engine is closed; nil: nothing
}

// ItemFrames is what a rank that rank 0 sends items takes of Go's heap for them.
const ItemFrames = ranks.ItemFrame * ranks.ItemBuffers

// lead returns the device that runs each step on all ranks: dev itself if there is one rank. It waits until the others have loaded their
// weights.
func (c Config) lead(ctx context.Context, dev backend.Device) (backend.Device, error) {
	if c.Ranks == nil {
		return dev, nil
	}
	l := c.Ranks.Leader
	l.OnFail(func(err error) { ranks.Abort(dev, c.Options.Backend.Group, err) })
	if err := l.Loaded(ctx); err != nil {
		return nil, err
	}
	a := c.Account
	return l.Drive(dev, c.Ranks.Places, a.shape(), a.WholeStep), nil
}

// whole returns the reservation as the runner sees it: with the step buffers and KV classes of all pipeline stages.
func (a *Account) whole() backend.Reservation {
	r := a.Reservation
	r.Step, r.Classes = a.WholeStep, a.Whole
	return r
}

// slabs returns the slabs of the KV arena and of swap space. One rank uses all of an arena, which its backend has rounded up. The
// slabs of ranks differ in size, so that what is rounded up holds more of them on one rank than on another: several
// ranks use those that the options give all of them.
func (c Config) slabs() (pages, swap int) {
	a := c.Account
	if c.Ranks != nil {
		return a.Slabs(c.Options.KVBytes), a.Slabs(c.Options.SwapBytes)
	}
	return a.Slabs(a.Reservation.Arenas[backend.KV]), a.Slabs(a.Reservation.Arenas[backend.Swap])
}

// shape returns the shape of this rank's step buffers.
func (a *Account) shape() ranks.Shape {
	return ranks.ShapeOf(a.Reservation.Step, a.ClassOf, len(a.Whole), a.Reservation.Encoder)
}

// watchRanks ends the loop when the group of ranks fails, also while it has nothing to run.
func (e *Engine) watchRanks(c Config) {
	if c.Ranks == nil {
		return
	}
	e.leader, e.disconnect = c.Ranks.Leader, c.Ranks.Close
	e.leader.OnFail(func(err error) { _ = e.in.put(message{do: func(l *loop) { l.broken = err }}) })
}

// Follow is Open for a rank other than 0: it takes the memory of the account, loads the rank's part of the weights, and
// runs the steps that rank 0 sends. ready is called with the allocated bytes when it can run them. It returns nil when
// rank 0 ends the group, and otherwise why this rank, another one or ctx did.
func Follow(ctx context.Context, c Config, f *ranks.Follower, p ranks.Places, ready func([backend.NumArenas]int64)) (err error) {
	if err := c.Model.Loadable(); err != nil {
		return err
	}
	dev, err := c.open(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, dev.Close()) }()
	r := c.Account.Reservation
	exe, err := dev.Compile(r.Programs[0])
	if err != nil {
		return err
	}
	w := ranks.Work{Device: dev, Exe: exe, Group: c.Options.Backend.Group, Places: p, Shape: c.Account.shape()}
	if p := c.Account.encoder(); p != nil {
		enc, ok := dev.(backend.Encoder)
		if !ok {
			return backend.Unsupported(c.Opener.Name(), "program "+p.Name, "the device runs steps only")
		}
		if w.Tower, err = dev.Compile(p); err != nil {
			return err
		}
		w.Encoder = enc
	}
	e := &Engine{opts: c.Options, dev: dev, done: make(chan struct{})}
	if e.adapters.open(c.Model); e.adapters.family != nil {
		e.follow(&w)
	}
	e.cache = writeCache(dev, c.Hooks.Cache)
	defer e.cache.end()
	if err := f.Loaded(); err != nil {
		return err
	}
	ready(dev.Usage())
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	return f.Run(ctx, w)
}

// follow lets a follower read and write adapters when rank 0 says so.
func (e *Engine) follow(w *ranks.Work) {
	var rows []slotRows
	w.ReadAdapter = func(b []byte) error {
		var a adapterFiles
		if err := json.Unmarshal(b, &a); err != nil {
			return err
		}
		_, writes, err := e.readAdapter(a.Name, a.Dir)
		rows = writes
		return err
	}
	w.PutAdapter = func(slot int) error {
		dev, ok := e.dev.(backend.AdapterWriter)
		if !ok {
			return fmt.Errorf("the device cannot write adapters: %w", backend.ErrUnsupported)
		}
		return putRows(dev, rows, slot)
	}
}

// adapterFiles says to the other ranks which adapter to read.
type adapterFiles struct{ Name, Dir string }

// putRows writes the rows of an adapter to a slot.
func putRows(dev backend.AdapterWriter, rows []slotRows, slot int) error {
	for _, w := range rows {
		if err := dev.WriteRows(w.weight, slot*w.rows, w.data); err != nil {
			return err
		}
	}
	return nil
}
