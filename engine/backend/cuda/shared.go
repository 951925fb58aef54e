//go:build linux && cgo && cuda

package cuda

import (
	"errors"
	"fmt"
	"sync"

	"vapp.dev/engine/backend"
	"vapp.dev/engine/backend/cuda/driver"
)

// memory is a Weights arena, on the device or in the host's memory, and its users. All devices of a GPU in a process
// have one context, the primary one; the memory holds it while it lives.
type memory struct {
	*backend.SharedWeights
	ctx   *driver.Context // its own reference
	bytes int64

	mu   sync.Mutex // guards the following
	at   driver.Address
	host *hostCopy // nil: the weights are at at
}

// weights is a reference to the weights of a device.
type weights struct {
	*backend.WeightsHolder
	of *memory
}

var (
	_ backend.Sharer    = (*device)(nil)
	_ backend.Offloader = weights{}
)

// ofWeights returns what other devices must have in common with d to use its weights.
func (d *device) ofWeights(s backend.Settings) backend.WeightsOf {
	on := d.ctx.Info()
	return d.r.OfWeights(name, fmt.Sprintf("device %d, %s, %s", on.Ordinal, on.Name, on.UUID), d.layout.Packing(), s.Cache.Key)
}

// joinWeights makes the device a user of the weights of the settings, if there are any.
func (d *device) joinWeights(s backend.Settings) error {
	if s.Weights == nil {
		return nil
	}
	w, err := backend.JoinWeights[weights](s, d.ofWeights(s))
	if err != nil {
		return err
	}
	d.shared, d.joined = w.of, true
	return nil
}

// openWeights begins to count the users of the device's own arena, or copies that of the settings from the host.
func (d *device) openWeights(s backend.Settings) (err error) {
	if d.joined {
		d.arenas[backend.Weights], err = d.shared.restore()
		return err
	}
	m := &memory{bytes: d.r.Arenas[backend.Weights], at: d.arenas[backend.Weights]}
	if m.ctx, err = d.ctx.Retain(); err != nil {
		return err
	}
	m.SharedWeights = backend.NewSharedWeights(d.ofWeights(s), m.free)
	d.shared = m
	return nil
}

// ShareWeights implements backend.Sharer.
func (d *device) ShareWeights() (backend.PackedWeights, error) {
	if d.layout.group != nil {
		return nil, backend.Unsupported(name, "sharing weights", "the model has several ranks")
	}
	h, err := d.shared.Hold()
	if err != nil {
		return nil, err
	}
	return weights{h, d.shared}, nil
}

// WeightsInfo implements backend.Sharer.
func (d *device) WeightsInfo() backend.WeightsInfo { return d.shared.Info() }

// there returns the bytes of device memory that the weights already take.
func (m *memory) there() int64 {
	if m == nil {
		return 0
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.at == 0 {
		return 0
	}
	return m.bytes
}

// leave ends the use by a device; m may be nil.
func (m *memory) leave() error {
	if m == nil {
		return nil
	}
	return m.Leave()
}

// lose gives the memory up, because its device has failed. It frees nothing: that happens with the context, unless
// the device hangs. m may be nil.
func (m *memory) lose(why error) error {
	if m == nil || !m.Lose(why) || hung(why) {
		return nil
	}
	return m.ctx.Close()
}

// free frees the memory for its last user.
func (m *memory) free() error {
	err := m.ctx.Do(func() error {
		var errs []error
		if m.at != 0 {
			errs = append(errs, m.ctx.Free(m.at))
		}
		if m.host != nil {
			errs = append(errs, m.host.free(m.ctx))
		}
		m.at, m.host = 0, nil
		return errors.Join(errs...)
	})
	return errors.Join(err, m.ctx.Close())
}
