package responses

import (
	"encoding/json"
	"errors"
	"fmt"
	"time"

	bolt "go.etcd.io/bbolt"
)

// TooLargeError is a record that the limit leaves no room for, were it alone.
type TooLargeError struct{ Bytes, Limit int64 }

func (e *TooLargeError) Error() string {
	return fmt.Sprintf("the response takes %d bytes and the store may hold %d", e.Bytes, e.Limit)
}

// Put stores a record in place of one under the same id, and makes room for it.
// When it returns the record outlives the process and the machine.
func (s *Store) Put(o Owner, rec Record) error {
	return s.guarded(func() error {
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

// evict takes the oldest away until the rest is within the limit; keep stays.
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

// sweepAtOnce is how many records one transaction takes away.
const sweepAtOnce = 256

// Sweep takes away what is too old or too much.
func (s *Store) Sweep() error {
	for more := true; more; {
		if err := s.guarded(func() error {
			return s.db.Update(func(tx *bolt.Tx) error {
				l := s.limits.Load()
				for range sweepAtOnce {
					key, created := oldest(tx, nil)
					if more = key != nil && (s.aged(created) || total(tx) > l.MaxBytes); !more {
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

func (s *Store) aged(created time.Time) bool {
	return s.cfg.Now().Sub(created) >= s.limits.Load().MaxAge
}

// sweepEach is how often age is looked at when nothing is stored; whoever asks
// for something too old does not find it in between.
const sweepEach = time.Minute

func (s *Store) sweeping() {
	defer close(s.swept)
	t := time.NewTicker(sweepEach)
	defer t.Stop()
	for {
		select {
		case <-s.stop:
			return
		case <-t.C:
			// a file that fails says so to whoever stores or asks next
			_ = s.Sweep()
		}
	}
}

// Get is a record without its items and events.
func (s *Store) Get(o Owner, id string) (rec Record, err error) {
	err = s.view(o, id, func(_ *bolt.Tx, r *entry) error {
		rec = Record{ID: id, Created: time.Unix(0, r.Created), Background: r.Background, Running: r.Running, Body: r.Body}
		return nil
	})
	return rec, err
}

// view reads one record that is not too old.
func (s *Store) view(o Owner, id string, read func(*bolt.Tx, *entry) error) error {
	return s.guarded(func() error {
		return s.db.View(func(tx *bolt.Tx) error {
			r, err := load(tx, keyOf(o, id))
			if err != nil {
				return err
			}
			if s.aged(time.Unix(0, r.Created)) {
				return ErrNotFound
			}
			return read(tx, r)
		})
	})
}

// Items are those of a record: what it answers, and what it said.
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

// Item is one item of any record.
func (s *Store) Item(o Owner, id string) (text json.RawMessage, err error) {
	err = s.guarded(func() error {
		return s.db.View(func(tx *bolt.Tx) (err error) {
			text, err = itemOf(tx, o, id)
			return err
		})
	})
	return text, err
}

// Events are those of a record; nil: it has none.
func (s *Store) Events(o Owner, id string) (list []byte, err error) {
	err = s.view(o, id, func(tx *bolt.Tx, _ *entry) error {
		if v := tx.Bucket(events).Get(keyOf(o, id)); v != nil {
			list = append([]byte{}, v...)
		}
		return nil
	})
	return list, err
}

// Delete takes a record away.
func (s *Store) Delete(o Owner, id string) error {
	return s.guarded(func() error {
		return s.db.Update(func(tx *bolt.Tx) error {
			if r, err := load(tx, keyOf(o, id)); err == nil && s.aged(time.Unix(0, r.Created)) {
				return ErrNotFound
			}
			return remove(tx, keyOf(o, id))
		})
	})
}
