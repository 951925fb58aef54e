package engine

import (
	"context"
	"crypto/sha256"
	"errors"
	"time"

	"vapp.dev/engine/backend"
	"vapp.dev/engine/checkpoint"
)

// CacheEvent reports the use of the file of packed weights (backend.Settings.Cache).
type CacheEvent struct {
	backend.CacheUse
	Written bool  // the file was written; Took is how long that took
	Err     error // why the file could not be written
}

// Fingerprint returns a hash of all files that the weights are packed from, with their times: those of the model and of its draft
// model. It reads both ends of each tensor.
func (m *Model) Fingerprint() ([32]byte, error) { return m.hash((*checkpoint.Checkpoint).Fingerprint) }

// Contents returns a hash that is equal for copies of the model, and of its draft model, on other machines. It reads both ends of
// each tensor.
func (m *Model) Contents() ([32]byte, error) { return m.hash((*checkpoint.Checkpoint).Contents) }

func (m *Model) hash(of func(*checkpoint.Checkpoint) ([32]byte, error)) ([32]byte, error) {
	h := sha256.New()
	for ; m != nil; m = m.Draft {
		d, err := of(m.Checkpoint)
		if err != nil {
			return d, err
		}
		h.Write(d[:])
	}
	return [32]byte(h.Sum(nil)), nil
}

// open opens the device with the account's memory. It takes the weights of c.Weights, or loads them, from the file
// of packed weights if there is a valid one.
func (c Config) open(ctx context.Context) (backend.Device, error) {
	s := c.Options.Backend
	var err error
	if s.Cache.Key, err = c.Model.Fingerprint(); err != nil {
		return nil, err
	}
	s.Weights = c.Weights
	dev, err := c.Opener.Open(c.Facts, s, c.Account.Reservation)
	if err != nil {
		return nil, err
	}
	if c.Weights != nil {
		if err := uses(c.Opener.Name(), dev, c.Weights); err != nil {
			return nil, errors.Join(err, dev.Close())
		}
		return dev, nil
	}
	if k, ok := dev.(backend.CacheWriter); ok && k.CacheUse().Loaded {
		return dev, nil
	}
	if err := load(ctx, c.Model, dev, c.Account.Reservation, c.Facts.Cores, c.Progress); err != nil {
		return nil, errors.Join(err, dev.Close())
	}
	return dev, nil
}

// cacheWriter writes the packed weights to their file in the background. The zero value
// writes nothing.
type cacheWriter struct {
	stop context.CancelFunc
	done chan struct{}
}

// writeCache reports how the weights were loaded and, if no valid file exists, starts to write
// one. report may be nil.
func writeCache(dev backend.Device, report func(CacheEvent)) cacheWriter {
	k, ok := dev.(backend.CacheWriter)
	if !ok || k.CacheUse().Path == "" {
		return cacheWriter{}
	}
	if report == nil {
		report = func(CacheEvent) {}
	}
	use := k.CacheUse()
	report(CacheEvent{CacheUse: use})
	if use.Loaded {
		return cacheWriter{}
	}
	ctx, stop := context.WithCancel(context.Background())
	w := cacheWriter{stop, make(chan struct{})}
	go func() {
		defer close(w.done)
		begin := time.Now()
		err := k.WriteCache(ctx)
		use = k.CacheUse()
		use.Took = time.Since(begin)
		report(CacheEvent{CacheUse: use, Written: err == nil, Err: err})
	}()
	return w
}

// end stops the writing and waits for it, so that the device may be closed.
func (k cacheWriter) end() {
	if k.stop != nil {
		k.stop()
		<-k.done
	}
}
