//go:build linux && cgo && cuda

package cuda

import (
	"fmt"
	"time"
	"unsafe"

	"vapp.dev/engine/backend"
	"vapp.dev/engine/backend/cuda/driver"
)

var _ backend.AdapterWriter = (*device)(nil)

// WriteRows implements backend.AdapterWriter. The copy is queued behind all launches.
func (d *device) WriteRows(i backend.WeightID, row0 int, data []byte) error {
	if i < 0 || int(i) >= len(d.offsets) {
		return fmt.Errorf("backend %s: rows of weight %d, there are %d", name, i, len(d.offsets))
	}
	at, err := d.r.Weights[i].RowsAt(row0, data)
	if err != nil {
		return fmt.Errorf("backend %s: %w", name, err)
	}
	if len(data) == 0 {
		return nil
	}
	return d.named(d.do(func() error {
		to := d.arenas[backend.Weights] + driver.Address(d.offsets[i]+at)
		if err := d.work.ToDevice(to, unsafe.Pointer(unsafe.SliceData(data)), int64(len(data))); err != nil {
			return err
		}
		return d.work.wait.until(d.work, d.runningLimit())
	}))
}

// runningLimit returns how long the launches that run may take.
func (d *device) runningLimit() time.Duration {
	limit := hangTimeout
	for _, s := range d.sets {
		if s.running {
			limit += s.limit
		}
	}
	return limit
}

// clearUnloaded fills the weights that Pack is not called for with zeros.
func (d *device) clearUnloaded() error {
	for i, w := range d.r.Weights {
		if !w.Unloaded {
			continue
		}
		if err := d.work.Fill(d.arenas[backend.Weights]+driver.Address(d.offsets[i]), 0, d.r.Packed[i].Bytes); err != nil {
			return err
		}
	}
	return nil
}
