//go:build cgo && linux

package cpu

/*
#include "pool.h"
*/
import "C"

import (
	"fmt"
	"sync/atomic"
	"time"
	"unsafe"

	"vapp.dev/engine/backend"
)

// run is a launch of a device in a group. The pool never calls Go, so a goroutine passes it the phases between two
// exchanges, waits, and makes the group's call.
type run struct {
	e    *executable
	list *list
	b    backend.Binding
	done chan error
}

// startRanks starts the goroutine. It ends when the queue is closed.
func (d *device) startRanks() {
	d.ranks = make(chan *run, len(d.sets)+1) // of all sets, and an item's
	for i := range d.sets {
		d.sets[i].run.done = make(chan error, 1)
	}
	d.encoder.set.run.done = make(chan error, 1)
	go func(queue <-chan *run) {
		for r := range queue {
			r.done <- d.run(r)
		}
	}(d.ranks)
}

// run runs a launch. After an error the calls of all ranks fail.
func (d *device) run(r *run) error {
	from := 0
	for i, op := range r.e.exchanges {
		if err := d.between(r, from, r.list.cuts[i]); err != nil {
			return err
		}
		from = r.list.cuts[i]
		begun := time.Now()
		err := d.exchange(r, op)
		if d.timeOps {
			r.e.exchanged[r.b.Set][i].add(r.b, time.Since(begun))
		}
		if err != nil {
			d.layout.group.Abort(err)
			return fmt.Errorf("backend %s: program %s, %s: %w", name, r.e.p.Name, backend.OpName(op), err)
		}
	}
	return d.between(r, from, r.list.n)
}

// longStep is the number of tokens from which a step can be interrupted after each phase, rather than at its exchanges: it
// may take many seconds.
const longStep = 256

// between runs phases from to to−1. It returns the error of Interrupt.
func (d *device) between(r *run, from, to int) error {
	for from < to {
		if err := d.interrupted.Load(); err != nil {
			return *err
		}
		next := to
		if r.b.Tokens >= longStep {
			next = from + 1
		}
		C.vapp_pool_wait(d.pool, d.launch(r.e, r.list.part(from, next), r.b))
		from = next
	}
	return nil
}

// add counts an exchange of a launch. The pool counts its time as one between steps.
func (c *clocks) add(b backend.Binding, d time.Duration) {
	kind := 0
	if b.Tokens > b.Seqs {
		kind = 1
	}
	atomic.AddInt64(&c.runs[kind], 1)
	atomic.AddInt64(&c.wall[kind], int64(d))
	atomic.AddInt64(&c.idle[kind], -int64(d))
}

// Interrupt ends the launches of a device in a group with err.
func (d *device) Interrupt(err error) { d.interrupted.CompareAndSwap(nil, &err) }

// exchange makes the group's call of an op.
func (d *device) exchange(r *run, op backend.Op) error {
	floats := func(v backend.Value) []float32 {
		in := r.e.p.Values[v]
		rows := backend.Bucket{Tokens: r.b.Tokens, Seqs: r.b.Seqs, Samples: r.b.Samples, Chunk: r.e.p.Bucket.Chunk}.Rows(in.Rows)
		b := d.arenas[backend.Scratch].slice(in.Offset, in.Format.Bytes(int64(rows)*int64(in.Cols)))
		return unsafe.Slice((*float32)(unsafe.Pointer(unsafe.SliceData(b))), len(b)/4)
	}
	switch o := op.(type) {
	case backend.AllReduce:
		return d.layout.group.AllReduce(floats(o.X))
	case backend.AllGather:
		return d.layout.group.AllGather(floats(o.X), floats(o.Y), r.e.p.Values[o.X].Cols)
	case backend.Send:
		return d.layout.group.Send(floats(o.X))
	case backend.Receive:
		return d.layout.group.Receive(floats(o.Y))
	}
	return backend.Unsupported(name, "op "+backend.OpName(op), "it is not between ranks")
}

// exchange appends an op between ranks: the phases before it end first.
func (c *compiler) exchange(op backend.Op) error {
	if c.d.layout.group == nil && c.p.Shard.World == 1 {
		return nil // a sum over one rank
	}
	c.exchanges, c.cuts = append(c.exchanges, op), append(c.cuts, len(c.phases))
	if c.d.timeOps {
		t := phaseTime{c.name, &clocks{}}
		c.times, c.exchanged = append(c.times, t), append(c.exchanged, t.clocks)
	}
	return nil
}
