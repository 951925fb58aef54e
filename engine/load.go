package engine

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"

	"vapp.dev/engine/backend"
)

// Progress is the progress of a start: packed bytes of weights and then, on a device that
// captures graphs, captured graphs.
type Progress struct {
	Done, Total int64
	Capturing   bool // Done and Total count graphs, not bytes
}

// load packs all weights of the reservation with several workers, and then drops the mapped
// pages of the checkpoint.
func load(ctx context.Context, m *Model, dev backend.Device, r backend.Reservation, workers int, report func(Progress)) error {
	var total int64
	for i, p := range r.Packed {
		if !r.Weights[i].Unloaded {
			total += p.Bytes
		}
	}
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	var next, done atomic.Int64
	var mu sync.Mutex // serializes report
	var wg sync.WaitGroup
	for range max(1, workers) {
		wg.Go(func() {
			for ctx.Err() == nil {
				i := int(next.Add(1)) - 1
				if i >= len(r.Weights) {
					return
				}
				if r.Weights[i].Unloaded {
					continue // rows of adapters are zero at first
				}
				if err := packOne(m, dev, r, i); err != nil {
					stop(err)
					return
				}
				mu.Lock()
				if n := done.Add(r.Packed[i].Bytes); report != nil {
					report(Progress{Done: n, Total: total})
				}
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	if err := context.Cause(ctx); err != nil {
		return fmt.Errorf("load %s: %w", m.Source.Name, err)
	}
	if m.Draft != nil {
		if err := m.Draft.Checkpoint.DropPages(); err != nil {
			return err
		}
	}
	return m.Checkpoint.DropPages()
}

// packOne packs a weight and releases its mapped pages at once, so that a load keeps only the
// weights in progress in memory.
func packOne(m *Model, dev backend.Device, r backend.Reservation, i int) error {
	if err := dev.Pack(i, rowReader{m}); err != nil {
		return fmt.Errorf("weight %s: %w", r.Weights[i].Name, err)
	}
	for _, p := range r.Weights[i].Parts {
		if p.Tensor == "" {
			continue
		}
		holder, name := m.tensorOwner(p.Tensor)
		if holder.Where != FromCheckpoint {
			continue
		}
		if err := holder.Checkpoint.Release(name); err != nil {
			return err
		}
	}
	return nil
}
