package chat

import (
	"context"
	"slices"
	"sync"
)

// workers limits how many windows of text are encoded at the same time. Waiting texts are
// served in order of arrival. Texts of one window alternate with windows of long texts, so
// that neither blocks the other.
type workers struct {
	mu      sync.Mutex
	free    int
	waiting [2][]chan struct{} // of short texts, of long ones
	turn    int                // index of the list to serve next
}

func newWorkers(n int) *workers { return &workers{free: max(1, n)} }

// acquire waits for a worker or for the end of ctx. long: the text has several windows.
func (w *workers) acquire(ctx context.Context, long bool) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	w.mu.Lock()
	if w.free > 0 {
		w.free--
		w.mu.Unlock()
		return nil
	}
	list := &w.waiting[0]
	if long {
		list = &w.waiting[1]
	}
	mine := make(chan struct{})
	*list = append(*list, mine)
	w.mu.Unlock()
	select {
	case <-mine:
		return nil
	case <-ctx.Done():
	}
	w.mu.Lock()
	i := slices.Index(*list, mine)
	if i >= 0 {
		*list = slices.Delete(*list, i, i+1)
	}
	w.mu.Unlock()
	if i < 0 { // a worker was handed over at the same time
		w.release()
	}
	return ctx.Err()
}

// release hands the worker to the next waiting text, if there is one.
func (w *workers) release() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for range w.waiting {
		list := &w.waiting[w.turn]
		w.turn = 1 - w.turn
		if len(*list) > 0 {
			close((*list)[0])
			*list = slices.Delete(*list, 0, 1)
			return
		}
	}
	w.free++
}
