//go:build linux && cgo && cuda

package cuda

import (
	"testing"
	"time"

	"vapp.dev/engine/backend"
	"vapp.dev/engine/backend/cuda/driver"
)

// TestQueueNeverFills: launches on a hanging device fail after the limit, before a driver's
// queue is full and it blocks the caller (the emulated driver ends the process then).
func TestQueueNeverFills(t *testing.T) {
	d, e := stepping(t, backend.StepShape{Tokens: 4, Seqs: 4, Samples: 4, Vocab: 32}, backend.Graphs{})
	list := e.(*executable).lists[0][0]
	if err := driver.Emulate("fault=kernel:1:600"); err != nil {
		t.Skip("no device hangs on demand: ", err)
	}
	defer driver.Emulate("reset")
	SetHangTimeout(t, 50*time.Millisecond)
	launched := 0
	err := d.do(func() error {
		for launched < 5000 {
			if err := d.work.run(list, 0, list.Len(), bound(4, 4, 4), hangTimeout); err != nil {
				return err
			}
			launched += list.Len()
		}
		return nil
	})
	if !hung(err) || launched < tickLaunches || launched > 2*tickLaunches {
		t.Errorf("after %d launches: %v", launched, err)
	}
	if err := d.Close(); err != nil {
		t.Errorf("closed: %v", err)
	}
}
