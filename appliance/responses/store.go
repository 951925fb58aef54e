// Package responses keeps answers of POST /v1/responses in one file, for a time
// and in a size that are bounded. It stores JSON texts under ids and knows nothing
// of what they mean.
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

// ErrNotFound says that an owner has nothing under an id.
var ErrNotFound = errors.New("responses: not found")

// Owner is whose a record is; nobody sees those of another.
type Owner [16]byte

// Limits bound what is kept. The oldest records go first.
type Limits struct {
	MaxAge   time.Duration // since a record was created
	MaxBytes int64         // of all records with their items and events
}

// Item is a part of a conversation under its id. Records that have it in common
// share it.
type Item struct {
	ID   string
	JSON json.RawMessage
}

// Record is one response.
type Record struct {
	ID         string
	Created    time.Time // zero for Put: that of the record it replaces, else now
	Background bool
	Running    bool            // it has not ended
	Body       json.RawMessage // the response
	Input      []Item          // what it answers, what came before included
	Output     []Item
	Events     []byte // what its stream told; nil: it had none, or none to keep
}

// Config says where the file is and what it may hold.
type Config struct {
	Path   string
	Limits Limits
	// Orphan is the body of a record that was running when the process ended.
	Orphan func(body json.RawMessage) json.RawMessage
	Now    func() time.Time // nil: time.Now
}

// Store is an open file. It may be used from any goroutine.
type Store struct {
	cfg    Config
	db     *bolt.DB
	limits atomic.Pointer[Limits]
	stop   chan struct{}
	swept  chan struct{}
	close  func() error
}

// The buckets. Keys of records, events and running are owner and id; of items owner
// and item's id; of order the time of creation before that.
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

// version of the layout.
const version = 1

// lockWait is how long another process may take to let go of the file, as one that
// is being restarted does.
const lockWait = time.Second

// FileError is a file that cannot be used; its text says what to do.
type FileError struct {
	Path string
	Why  string
}

func (e *FileError) Error() string { return e.Path + " " + e.Why }

// Open opens the file, or makes it. What was running is marked as orphaned, what
// is over the limits removed. Its errors are *FileError where the file is at fault.
func Open(c Config) (*Store, error) {
	if c.Now == nil {
		c.Now = time.Now
	}
	s := &Store{cfg: c, stop: make(chan struct{}), swept: make(chan struct{})}
	s.limits.Store(&c.Limits)
	if err := s.check(); err != nil {
		return nil, err
	}
	err := s.guarded(func() (err error) {
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
	go s.sweeping()
	return s, nil
}

// check looks at a file that is there before it is written to: one that ends before
// its last page would end the process when that page is read.
func (s *Store) check() error {
	st, err := os.Stat(s.cfg.Path)
	switch {
	case errors.Is(err, fs.ErrNotExist) || err == nil && st.Mode().IsRegular() && st.Size() == 0:
		return nil
	case err != nil:
		return &FileError{s.cfg.Path, "cannot be read: " + err.Error()}
	case !st.Mode().IsRegular():
		return &FileError{s.cfg.Path, "is not a file; name one that is, or one that does not exist yet"}
	}
	return s.guarded(func() error {
		db, err := bolt.Open(s.cfg.Path, 0o600, &bolt.Options{Timeout: lockWait, ReadOnly: true})
		if err != nil {
			return s.explain(err)
		}
		defer db.Close()
		return db.View(func(tx *bolt.Tx) error {
			if tx.Size() > st.Size() {
				return &FileError{s.cfg.Path, fmt.Sprintf("was cut off: it has %d bytes of %d; move it away to begin with an empty one", st.Size(), tx.Size())}
			}
			return nil
		})
	})
}

// explain says what to do about an error of opening.
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

// guarded turns what a damaged file does to its reader into an error.
func (s *Store) guarded(f func() error) (err error) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if p := recover(); p != nil {
			err = &FileError{s.cfg.Path, fmt.Sprintf("is damaged: %v; move it away to begin with an empty one", p)}
		}
	}()
	return f()
}

// prepare makes the buckets, and ends what was running.
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
		if err := s.orphan(tx, k); err != nil {
			return err
		}
	}
	return nil
}

func (s *Store) orphan(tx *bolt.Tx, key []byte) error {
	r, err := load(tx, key)
	if err != nil {
		return err
	}
	was := r.size(key)
	if r.Running = false; s.cfg.Orphan != nil {
		r.Body = s.cfg.Orphan(r.Body)
	}
	if err := r.save(tx, key); err != nil {
		return err
	}
	return errors.Join(tx.Bucket(running).Delete(key), count(tx, r.size(key)-was))
}

// SetLimits changes the limits, for what is stored or swept from now on.
func (s *Store) SetLimits(l Limits) { s.limits.Store(&l) }

// Close ends what sweeps and closes the file, once.
func (s *Store) Close() error { return s.close() }

// Bytes is how much is stored, as MaxBytes counts.
func (s *Store) Bytes() (n int64, err error) {
	err = s.guarded(func() error {
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

// count adds to what is stored.
func count(tx *bolt.Tx, n int64) error {
	return tx.Bucket(about).Put(bytesKey, binary.BigEndian.AppendUint64(nil, uint64(total(tx)+n)))
}
