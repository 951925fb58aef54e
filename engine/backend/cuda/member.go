//go:build linux && cgo && cuda

package cuda

import (
	"errors"
	"fmt"
	"time"

	"vapp.dev/engine/backend/cuda/driver"
	"vapp.dev/engine/backend/nccl"
)

// member is this process's GPU: its context and streams, and its place among ranks.
type member struct {
	ctx   *driver.Context
	work  queue          // for launches and moves
	in    *driver.Stream // for copies from the host before them
	ranks *nccl.Group    // nil: there is one rank
}

// openMember opens the device of an ordinal and makes its context current on the thread, which the
// caller has locked.
func openMember(ordinal int, ranks *nccl.Group) (*member, error) {
	ctx, err := driver.Open(ordinal)
	if err != nil {
		return nil, fmt.Errorf("backend %s: %w", name, err)
	}
	m := &member{ctx: ctx, ranks: ranks}
	if err = ctx.Enter(); err == nil {
		m.work, err = newQueue(ctx, waiter{ranks})
	}
	if err == nil {
		m.in, err = ctx.Stream()
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("backend %s: %w", name, err), m.close(), ctx.Close())
	}
	return m, nil
}

// join joins the other ranks and launches each kind of collective once, because the first one
// between two ranks connects them. scratch is device memory for a few numbers of each rank.
func (m *member) join(scratch driver.Address) error {
	if m.ranks == nil {
		return nil
	}
	if err := m.ranks.Join(m.ctx.Do); err != nil {
		return err
	}
	tensor, pipe := m.ranks.Tensor(), m.ranks.Pipe()
	var kinds []nccl.Kind
	if tensor.World > 1 {
		kinds = append(kinds, nccl.AllReduce, nccl.Exchange, nccl.Spread, nccl.AllGather)
	}
	if pipe.Rank > 0 {
		kinds = append(kinds, nccl.Receive)
	}
	if pipe.Rank+1 < pipe.World {
		kinds = append(kinds, nccl.Send)
	}
	var launches []driver.Launch
	for _, k := range kinds {
		x := uint64(scratch)
		a := nccl.Args{X: x, Y: x, Count: int32(tensor.World), Kind: k}
		if k == nccl.Exchange || k == nccl.AllGather {
			a.Y += joinBytes / 2
		}
		launches = append(launches, driver.Launch{Call: m.collective(), Blocks: [3]int{1, 1, 1}, Threads: [3]int{1, 1, 1}, Args: bytesOf(&a)})
	}
	list, err := driver.NewList(launches)
	if err != nil {
		return err
	}
	defer list.Close()
	if err := list.Run(m.work.Stream, 0, list.Len(), [driver.NumBound]int32{}); err != nil {
		return err
	}
	return m.work.wait.until(m.work, hangTimeout)
}

// joinBytes is the size of the memory that join needs.
const joinBytes = 4 << 10

// collective returns a launch of NCCL.
func (m *member) collective() *driver.Call {
	run, data := m.ranks.Launch()
	return &driver.Call{Name: "a collective", Args: len(bytesOf(&nccl.Args{})), Run: run, Data: data, Failed: m.ranks.Failed}
}

// waiter waits for a device whose work may wait for other ranks.
type waiter struct{ ranks *nccl.Group }

// ranksPeriod is how often an error of the ranks is looked for.
const ranksPeriod = 20 * time.Millisecond

// until waits for an event or a stream like its Wait. It also ends when the group has an error:
// collectives that still wait for other ranks then end, with no result, and the error is returned.
func (w waiter) until(of interface{ Wait(time.Duration) error }, limit time.Duration) error {
	if w.ranks == nil {
		return of.Wait(limit)
	}
	for waited := time.Duration(0); ; waited += ranksPeriod {
		err := of.Wait(min(ranksPeriod, limit-waited))
		if err != nil && !hung(err) {
			return err
		}
		if failed := w.ranks.Err(); failed != nil {
			return errors.Join(&ranksError{failed}, w.ranks.End(failed))
		}
		if err == nil || waited >= limit {
			return err
		}
	}
}

// ranksError is an error of the group: the device computes nothing any more.
type ranksError struct{ err error }

func (e *ranksError) Error() string { return e.err.Error() }
func (e *ranksError) Unwrap() error { return e.err }

// idle blocks until the device has no work. It returns *driver.HungError if that takes too long.
func (m *member) idle() error {
	return m.ctx.Do(func() error {
		if err := m.in.Wait(hangTimeout); err != nil {
			return err
		}
		return m.work.wait.until(m.work, hangTimeout)
	})
}

// close leaves the other ranks and frees the streams, which must be idle.
func (m *member) close() error {
	var err error
	if m.ranks != nil {
		err = m.ranks.Leave()
	}
	err = errors.Join(err, m.work.close())
	if m.in != nil {
		err = errors.Join(err, m.in.Close())
	}
	return err
}

// CollectiveBytes returns the device bytes of NCCL's communicators; ok is false for a device
// without other ranks, or with a library that does not report them.
func (d *device) CollectiveBytes() (bytes int64, ok bool) {
	if d.member == nil || d.ranks == nil {
		return 0, false
	}
	return d.ranks.Memory()
}
