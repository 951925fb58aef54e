package engine

import (
	"context"
	"crypto/sha256"
	"errors"
	"time"

	"vapp.dev/engine/backend"
)

// CacheEvent is what came of the file of packed weights (backend.Settings.Cache).
type CacheEvent struct {
	backend.CacheUse
	Written bool  // the file is there from now on; Took is how long writing it took
	Err     error // it could not be written
}

// digest is of all that the weights are packed from.
func (m *Model) digest() ([32]byte, error) {
	h := sha256.New()
	for ; m != nil; m = m.Draft {
		d, err := m.Checkpoint.Fingerprint()
		if err != nil {
			return d, err
		}
		h.Write(d[:])
	}
	return [32]byte(h.Sum(nil)), nil
}

// open takes the memory of the account, with the packed weights in it if they were kept.
func (c Config) open(ctx context.Context) (backend.Device, error) {
	s := c.Options.Backend
	if s.Cache.Dir != "" {
		var err error
		if s.Cache.Key, err = c.Model.digest(); err != nil {
			return nil, err
		}
	}
	dev, err := c.Opener.Open(c.Facts, s, c.Account.Reservation)
	if err != nil {
		return nil, err
	}
	if k, ok := dev.(backend.CacheWriter); ok && k.CacheUse().Loaded {
		return dev, nil
	}
	if err := load(ctx, c.Model, dev, c.Account.Reservation, c.Facts.Cores, c.Progress); err != nil {
		return nil, errors.Join(err, dev.Close())
	}
	return dev, nil
}

// keeping is the writing of packed weights beside the loop. The zero value is none.
type keeping struct {
	stop context.CancelFunc
	done chan struct{}
}

// keep says what came of the cache and writes the file where there is none that serves.
func keep(dev backend.Device, told func(CacheEvent)) keeping {
	k, ok := dev.(backend.CacheWriter)
	if !ok || k.CacheUse().Path == "" {
		return keeping{}
	}
	if told == nil {
		told = func(CacheEvent) {}
	}
	use := k.CacheUse()
	told(CacheEvent{CacheUse: use})
	if use.Loaded {
		return keeping{}
	}
	ctx, stop := context.WithCancel(context.Background())
	w := keeping{stop, make(chan struct{})}
	go func() {
		defer close(w.done)
		begin := time.Now()
		err := k.WriteCache(ctx)
		use = k.CacheUse()
		use.Took = time.Since(begin)
		told(CacheEvent{CacheUse: use, Written: err == nil, Err: err})
	}()
	return w
}

// end stops the writing: the device may be closed then.
func (k keeping) end() {
	if k.stop != nil {
		k.stop()
		<-k.done
	}
}
