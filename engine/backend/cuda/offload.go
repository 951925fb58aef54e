//go:build linux && cgo && cuda

package cuda

import (
	"errors"
	"fmt"
	"syscall"
	"unsafe"

	"vapp.dev/engine/backend"
	"vapp.dev/engine/backend/cuda/driver"
)

// hostCopy is host memory for the weights of a device.
type hostCopy struct {
	bytes  []byte
	pinned bool
}

// newHostCopy allocates n bytes of pinned memory, or of plain memory if the system pins no more.
func newHostCopy(ctx *driver.Context, n int64) (*hostCopy, error) {
	b, _, err := ctx.Pinned(n)
	if err == nil {
		return &hostCopy{b, true}, nil
	}
	var e *driver.Error
	if !errors.As(err, &e) || !e.OutOfMemory() {
		return nil, err
	}
	b, plain := syscall.Mmap(-1, 0, int(n), syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_PRIVATE|syscall.MAP_ANON)
	if plain != nil {
		return nil, errors.Join(err, fmt.Errorf("%d bytes of host memory: %w", n, plain))
	}
	return &hostCopy{b, false}, nil
}

func (h *hostCopy) free(ctx *driver.Context) error {
	if h.pinned {
		return ctx.FreePinned(h.bytes)
	}
	return syscall.Munmap(h.bytes)
}

// Offload implements backend.Offloader.
func (w weights) Offload() (use backend.OffloadUse, err error) {
	if err := w.Open(); err != nil {
		return use, err
	}
	err = w.of.Offload(func() (int64, error) {
		var err error
		use, err = w.of.offload()
		return use.Bytes, err
	})
	return use, err
}

// offload copies the weights to the host and frees them on the device.
func (m *memory) offload() (use backend.OffloadUse, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	err = m.ctx.Do(func() error {
		if m.host != nil || m.at == 0 {
			return nil
		}
		h, err := newHostCopy(m.ctx, m.bytes)
		if err != nil {
			return err
		}
		if err := m.copy(h, m.at, false); err != nil {
			return m.undo(err, func() error { return h.free(m.ctx) })
		}
		if err := m.ctx.Free(m.at); err != nil {
			return m.undo(err, func() error { return h.free(m.ctx) })
		}
		m.at, m.host = 0, h
		return nil
	})
	if err != nil {
		if fatal(err) {
			err = errors.Join(err, m.lose(err))
		}
		return use, fmt.Errorf("backend %s: weights to host memory: %w", name, err)
	}
	if m.host != nil {
		use = backend.OffloadUse{Bytes: m.bytes, Pinned: m.host.pinned}
	}
	return use, nil
}

// restore copies the weights back, if they are on the host, and returns their address. A device that has failed is
// the caller's.
func (m *memory) restore() (driver.Address, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.host == nil {
		return m.at, nil
	}
	at, err := m.ctx.Alloc(m.bytes)
	if err != nil {
		return 0, fmt.Errorf("the %v arena of %d bytes: %w", backend.Weights, m.bytes, err)
	}
	if err := m.copy(m.host, at, true); err != nil {
		return 0, m.undo(fmt.Errorf("weights from host memory: %w", err), func() error { return m.ctx.Free(at) })
	}
	err = m.host.free(m.ctx)
	m.at, m.host = at, nil
	m.Restored()
	return at, err
}

// undo frees what a failed move has allocated, unless the device has failed too.
func (m *memory) undo(err error, free func() error) error {
	if fatal(err) {
		return err
	}
	return errors.Join(err, free())
}

// copyBytes is how much is copied before it is waited for, so that the limit of the wait is not one for all weights.
// Tests change it.
var copyBytes int64 = 256 << 20

// copy copies the weights from the host to address at, or from there to the host.
func (m *memory) copy(h *hostCopy, at driver.Address, back bool) error {
	s, err := m.ctx.Stream()
	if err != nil {
		return err
	}
	for from := int64(0); from < m.bytes && err == nil; from += copyBytes {
		n, host := min(copyBytes, m.bytes-from), unsafe.Pointer(&h.bytes[from])
		if back {
			err = s.ToDevice(at+driver.Address(from), host, n)
		} else {
			err = s.FromDevice(host, at+driver.Address(from), n)
		}
		if err == nil {
			err = s.Wait(hangTimeout)
		}
	}
	if err != nil && fatal(err) {
		return err
	}
	return errors.Join(err, s.Close())
}
