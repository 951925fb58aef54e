package responses

import (
	"encoding/json"
	"errors"
	"fmt"
	"time"

	bolt "go.etcd.io/bbolt"
)

// TooLargeError is the error of a record that exceeds the limit even in an empty store.
type TooLargeError struct{ Bytes, Limit int64 }

func (e *TooLargeError) Error() string {
	return fmt.Sprintf("the response takes %d bytes and the store may hold %d", e.Bytes, e.Limit)
}

// Put stores a record, replaces one with the same id, and evicts old records to stay
// within the limit. When it returns, the record is synced to disk.
func (s *Store) Put(o Owner, rec Record) error {
	return s.catchFaults(func() error {
		return s.db.Update(func(tx *bolt.Tx) error {
			key := keyOf(o, rec.ID)
			was, err := load(tx, key)
			switch {
			case err == nil:
				if err := remove(tx, key); err != nil {
					return err
				}
				if rec.Created.IsZero() {
					rec.Created = time.Unix(0, was.Created)
				}
			case !errors.Is(err, ErrNotFound):
				return err
			case rec.Created.IsZero():
				rec.Created = s.cfg.Now()
			}
			if err := insert(tx, o, rec); err != nil {
				return err
			}
			return s.evict(tx, key)
		})
	})
}

// evict removes the oldest records, except keep, until the rest is within the limit.
func (s *Store) evict(tx *bolt.Tx, keep []byte) error {
	limit := s.limits.Load().MaxBytes
	for total(tx) > limit {
		key, _ := oldest(tx, keep)
		if key == nil {
			return &TooLargeError{total(tx), limit}
		}
		if err := remove(tx, key); err != nil {
			return err
		}
	}
	return nil
}

// sweepAtOnce is the maximum number of records that one transaction removes.
const sweepAtOnce = 256

// Sweep removes the records that exceed the limits of age and size.
func (s *Store) Sweep() error {
	for more := true; more; {
		if err := s.catchFaults(func() error {
			return s.db.Update(func(tx *bolt.Tx) error {
				l := s.limits.Load()
				for range sweepAtOnce {
					key, created := oldest(tx, nil)
					if more = key != nil && (s.expired(created) || total(tx) > l.MaxBytes); !more {
						return nil
					}
					if err := remove(tx, key); err != nil {
						return err
					}
				}
				return nil
			})
		}); err != nil {
			return err
		}
	}
	return nil
}

func (s *Store) expired(created time.Time) bool {
	return s.cfg.Now().Sub(created) >= s.limits.Load().MaxAge
}

// sweepEach is the interval of sweeps. Between sweeps, reads treat expired records as
// missing.
const sweepEach = time.Minute

func (s *Store) sweepLoop() {
	defer close(s.swept)
	t := time.NewTicker(sweepEach)
	defer t.Stop()
	for {
		select {
		case <-s.stop:
			return
		case <-t.C:
			// The next read or write returns the error.
			_ = s.Sweep()
		}
	}
}

// Get returns a record without its items and events.
func (s *Store) Get(o Owner, id string) (rec Record, err error) {
	err = s.view(o, id, func(_ *bolt.Tx, r *entry) error {
		rec = Record{ID: id, Created: time.Unix(0, r.Created), Background: r.Background, Running: r.Running, Body: r.Body}
		return nil
	})
	return rec, err
}

// view reads one record that has not expired.
func (s *Store) view(o Owner, id string, read func(*bolt.Tx, *entry) error) error {
	return s.catchFaults(func() error {
		return s.db.View(func(tx *bolt.Tx) error {
			r, err := load(tx, keyOf(o, id))
			if err != nil {
				return err
			}
			if s.expired(time.Unix(0, r.Created)) {
				return ErrNotFound
			}
			return read(tx, r)
		})
	})
}

// Items returns the input and output items of a record.
func (s *Store) Items(o Owner, id string) (input, output []Item, err error) {
	err = s.view(o, id, func(tx *bolt.Tx, r *entry) (err error) {
		if input, err = itemsOf(tx, o, r.Input); err == nil {
			output, err = itemsOf(tx, o, r.Output)
		}
		return err
	})
	return input, output, err
}

func itemsOf(tx *bolt.Tx, o Owner, ids []string) ([]Item, error) {
	out := make([]Item, len(ids))
	for i, id := range ids {
		text, err := itemOf(tx, o, id)
		if err != nil {
			return nil, fmt.Errorf("item %q: %w", id, err)
		}
		out[i] = Item{id, text}
	}
	return out, nil
}

func itemOf(tx *bolt.Tx, o Owner, id string) (json.RawMessage, error) {
	v := tx.Bucket(items).Get(keyOf(o, id))
	if len(v) < 4 {
		return nil, ErrNotFound
	}
	return append(json.RawMessage{}, v[4:]...), nil
}

// Item returns one item of any record.
func (s *Store) Item(o Owner, id string) (text json.RawMessage, err error) {
	err = s.catchFaults(func() error {
		return s.db.View(func(tx *bolt.Tx) (err error) {
			text, err = itemOf(tx, o, id)
			return err
		})
	})
	return text, err
}

// Events returns the events of a record; nil for none.
func (s *Store) Events(o Owner, id string) (list []byte, err error) {
	err = s.view(o, id, func(tx *bolt.Tx, _ *entry) error {
		if v := tx.Bucket(events).Get(keyOf(o, id)); v != nil {
			list = append([]byte{}, v...)
		}
		return nil
	})
	return list, err
}

// Delete removes a record.
func (s *Store) Delete(o Owner, id string) error {
	return s.catchFaults(func() error {
		return s.db.Update(func(tx *bolt.Tx) error {
			if r, err := load(tx, keyOf(o, id)); err == nil && s.expired(time.Unix(0, r.Created)) {
				return ErrNotFound
			}
			return remove(tx, keyOf(o, id))
		})
	})
}
