// Package responses stores the responses of POST /v1/responses in one file, with limits
// of age and size. It must not know the meaning of the JSON texts that it stores, nor
// import HTTP. Start reading at Store and Record in this file; access.go reads and
// writes, record.go has the layout.
package responses

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	bolt "go.etcd.io/bbolt"
)

// ErrNotFound is the error for an id that the owner does not have.
var ErrNotFound = errors.New("responses: not found")

// Owner identifies the owner of a record. An owner has no access to records of others.
type Owner [16]byte

// Limits are the limits of a store. The oldest records are evicted first.
type Limits struct {
	MaxAge   time.Duration // since a record was created
	MaxBytes int64         // of all records with their items and events
}

// Item is a part of a conversation with its id. Records share common items.
type Item struct {
	ID   string
	JSON json.RawMessage
}

// Record is one response.
type Record struct {
	ID         string
	Created    time.Time // zero in Put: the time of the replaced record, else now
	Background bool
	Running    bool            // not completed
	Body       json.RawMessage // the response
	Input      []Item          // the conversation before the response
	Output     []Item
	Events     []byte // events of its stream; nil: none are stored
}

// Config holds the path and limits of a store.
type Config struct {
	Path   string
	Limits Limits
	// Interrupted returns the final body of a record that was running when the
	// process ended.
	Interrupted func(body json.RawMessage) json.RawMessage
	Now         func() time.Time // nil: time.Now
}

// Store is an open store. It is safe for concurrent use.
type Store struct {
	cfg    Config
	db     *bolt.DB
	limits atomic.Pointer[Limits]
	stop   chan struct{}
	swept  chan struct{}
	close  func() error
}

// The buckets. The keys of records, events and running are owner and id; those of items
// are owner and the item's id; those of order are the time of creation, owner and id.
var (
	records = []byte("records")
	items   = []byte("items")
	events  = []byte("events")
	running = []byte("running")
	order   = []byte("order")
	about   = []byte("about")

	bytesKey   = []byte("bytes")
	versionKey = []byte("version")
)

// version is the version of the layout.
const version = 1

// lockWait is the time to wait for another process to release the file, such as a
// previous server that is stopping.
const lockWait = time.Second

// FileError is the error of a file that cannot be used. Its text has a remedy.
type FileError struct {
	Path string
	Why  string
}

func (e *FileError) Error() string { return e.Path + " " + e.Why }

// Open opens or creates the file. It marks running records as interrupted, and removes
// those that exceed the limits. Errors of the file are *FileError.
func Open(c Config) (*Store, error) {
	if c.Now == nil {
		c.Now = time.Now
	}
	s := &Store{cfg: c, stop: make(chan struct{}), swept: make(chan struct{})}
	s.limits.Store(&c.Limits)
	if err := s.check(); err != nil {
		return nil, err
	}
	err := s.catchFaults(func() (err error) {
		if s.db, err = bolt.Open(c.Path, 0o600, &bolt.Options{Timeout: lockWait, FreelistType: bolt.FreelistMapType}); err != nil {
			return s.explain(err)
		}
		if err = s.db.Update(s.prepare); err == nil {
			err = s.Sweep()
		}
		return err
	})
	if err != nil {
		if s.db != nil {
			err = errors.Join(err, s.db.Close())
		}
		return nil, err
	}
	s.close = sync.OnceValue(func() error {
		close(s.stop)
		<-s.swept
		return s.db.Close()
	})
	go s.sweepLoop()
	return s, nil
}

// check checks an existing file before it is opened for writing: reading a page after the
// end of a truncated file would crash the process.
func (s *Store) check() error {
	st, err := os.Stat(s.cfg.Path)
	switch {
	case errors.Is(err, fs.ErrNotExist) || err == nil && st.Mode().IsRegular() && st.Size() == 0:
		return nil
	case err != nil:
		return &FileError{s.cfg.Path, "cannot be read: " + err.Error()}
	case !st.Mode().IsRegular():
		return &FileError{s.cfg.Path, "is not a regular file; name a regular file, or one that does not exist yet"}
	}
	return s.catchFaults(func() error {
		db, err := bolt.Open(s.cfg.Path, 0o600, &bolt.Options{Timeout: lockWait, ReadOnly: true})
		if err != nil {
			return s.explain(err)
		}
		defer db.Close()
		return db.View(func(tx *bolt.Tx) error {
			if tx.Size() > st.Size() {
				return &FileError{s.cfg.Path, fmt.Sprintf("is truncated: it has %d bytes of %d; move it away to begin with an empty one", st.Size(), tx.Size())}
			}
			return nil
		})
	})
}

// explain returns an error of opening as a FileError with a remedy.
func (s *Store) explain(err error) error {
	why := "cannot be used: " + err.Error() + "; move it away to begin with an empty one"
	switch {
	case errors.Is(err, bolt.ErrTimeout):
		why = "is in use by another process; stop that, or give each server a file of its own"
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, fs.ErrPermission):
		why = "cannot be opened: " + err.Error() + "; make its folder, with the right to write in it"
	}
	return &FileError{s.cfg.Path, why}
}

// catchFaults calls f and returns panics and memory faults, which damaged files cause, as
// errors.
func (s *Store) catchFaults(f func() error) (err error) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if p := recover(); p != nil {
			err = &FileError{s.cfg.Path, fmt.Sprintf("is damaged: %v; move it away to begin with an empty one", p)}
		}
	}()
	return f()
}

// prepare creates the buckets, and marks running records as interrupted.
func (s *Store) prepare(tx *bolt.Tx) error {
	for _, name := range [][]byte{records, items, events, running, order, about} {
		if _, err := tx.CreateBucketIfNotExists(name); err != nil {
			return err
		}
	}
	b := tx.Bucket(about)
	if v := b.Get(versionKey); v == nil {
		if err := b.Put(versionKey, []byte{version}); err != nil {
			return err
		}
	} else if len(v) != 1 || v[0] != version {
		return &FileError{s.cfg.Path, "is of another release of vapp; move it away to begin with an empty one"}
	}
	var keys [][]byte
	if err := tx.Bucket(running).ForEach(func(k, _ []byte) error {
		keys = append(keys, append([]byte{}, k...))
		return nil
	}); err != nil {
		return err
	}
	for _, k := range keys {
		if err := s.interrupt(tx, k); err != nil {
			return err
		}
	}
	return nil
}

func (s *Store) interrupt(tx *bolt.Tx, key []byte) error {
	r, err := load(tx, key)
	if err != nil {
		return err
	}
	was := r.size(key)
	if r.Running = false; s.cfg.Interrupted != nil {
		r.Body = s.cfg.Interrupted(r.Body)
	}
	if err := r.save(tx, key); err != nil {
		return err
	}
	return errors.Join(tx.Bucket(running).Delete(key), count(tx, r.size(key)-was))
}

// SetLimits changes the limits for later calls of Put and Sweep.
func (s *Store) SetLimits(l Limits) { s.limits.Store(&l) }

// Close stops the sweeps and closes the file. Later calls have no effect.
func (s *Store) Close() error { return s.close() }

// Bytes returns the stored bytes, counted as for MaxBytes.
func (s *Store) Bytes() (n int64, err error) {
	err = s.catchFaults(func() error {
		return s.db.View(func(tx *bolt.Tx) error { n = total(tx); return nil })
	})
	return n, err
}

func total(tx *bolt.Tx) int64 {
	if v := tx.Bucket(about).Get(bytesKey); len(v) == 8 {
		return int64(binary.BigEndian.Uint64(v))
	}
	return 0
}

// count adds n to the stored bytes.
func count(tx *bolt.Tx, n int64) error {
	return tx.Bucket(about).Put(bytesKey, binary.BigEndian.AppendUint64(nil, uint64(total(tx)+n)))
}
