//go:build linux && cgo && cuda

package cuda

import (
	"errors"
	"fmt"

	"vapp.dev/engine/backend"
	"vapp.dev/engine/backend/cuda/driver"
)

// group is the GPUs of one engine, by rank. The programs (backend.Shard) define what each
// rank computes. Communication between ranks runs between the streams of the members, so a
// library of collectives would be opened here only.
type group struct{ ranks []*member }

// member is one GPU: its context and streams.
type member struct {
	ctx  *driver.Context
	work queue          // for launches and moves
	in   *driver.Stream // for copies from the host before them
}

// openGroup opens the devices of these ordinals. The context of the last one is then current
// on the thread, which the caller has locked. Only one device is supported.
func openGroup(ordinals ...int) (*group, error) {
	if n := len(ordinals); n != 1 {
		return nil, backend.Unsupported(name, fmt.Sprintf("%d GPUs", n), "parallel sizes above 1 are planned only")
	}
	g := &group{}
	for _, o := range ordinals {
		m, err := openMember(o)
		if err != nil {
			return nil, errors.Join(fmt.Errorf("backend %s: %w", name, err), g.close(), g.release())
		}
		g.ranks = append(g.ranks, m)
	}
	return g, nil
}

func openMember(ordinal int) (*member, error) {
	ctx, err := driver.Open(ordinal)
	if err != nil {
		return nil, err
	}
	m := &member{ctx: ctx}
	if m.work, err = newQueue(ctx); err == nil {
		m.in, err = ctx.Stream()
	}
	if err != nil {
		return nil, errors.Join(err, m.close(), ctx.Close())
	}
	return m, nil
}

// wait blocks until all members are idle. It returns *driver.HungError if one does not
// finish.
func (g *group) wait() error {
	for _, m := range g.ranks {
		err := m.ctx.Do(func() error {
			if err := m.in.Wait(hangTimeout); err != nil {
				return err
			}
			return m.work.Wait(hangTimeout)
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// close frees the streams, which must be idle.
func (g *group) close() error {
	var errs []error
	for _, m := range g.ranks {
		errs = append(errs, m.ctx.Do(m.close))
	}
	return errors.Join(errs...)
}

func (m *member) close() error {
	err := m.work.close()
	if m.in != nil {
		err = errors.Join(err, m.in.Close())
	}
	return err
}

// release releases the contexts. On a failed device nothing else can be freed.
func (g *group) release() error {
	var errs []error
	for _, m := range g.ranks {
		errs = append(errs, m.ctx.Close())
	}
	return errors.Join(errs...)
}
