package responses

import (
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	bolt "go.etcd.io/bbolt"
)

var (
	alice = Owner{1}
	bob   = Owner{2}
)

// clock is a time that the test advances.
type clock struct{ now time.Time }

func (c *clock) Now() time.Time { return c.now }

func testStore(t *testing.T, path string, l Limits) (*Store, *clock) {
	t.Helper()
	if path == "" {
		path = filepath.Join(t.TempDir(), "responses.db")
	}
	c := &clock{time.Unix(1700000000, 0)}
	s, err := Open(Config{Path: path, Limits: l, Now: c.Now, Interrupted: func(json.RawMessage) json.RawMessage { return json.RawMessage(`"orphan"`) }})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s, c
}

var wide = Limits{MaxAge: time.Hour, MaxBytes: 1 << 30}

func item(id string) Item { return Item{id, json.RawMessage(`{"id":"` + id + `"}`)} }

func record(c *clock, id string, input ...string) Record {
	r := Record{ID: id, Created: c.now, Body: json.RawMessage(`"<` + id + `>"`), Output: []Item{item(id + "-out")}}
	for _, in := range input {
		r.Input = append(r.Input, item(in))
	}
	return r
}

func put(t *testing.T, s *Store, o Owner, r Record) {
	t.Helper()
	if err := s.Put(o, r); err != nil {
		t.Fatal(err)
	}
}

// ids returns which of the given records exist.
func ids(s *Store, o Owner, list ...string) string {
	var out []string
	for _, id := range list {
		if _, err := s.Get(o, id); err == nil {
			out = append(out, id)
		} else if !errors.Is(err, ErrNotFound) {
			out = append(out, err.Error())
		}
	}
	return strings.Join(out, " ")
}

func TestPutGet(t *testing.T) {
	s, c := testStore(t, "", wide)
	r := record(c, "r1", "a", "b")
	r.Background, r.Events = true, []byte("events")
	put(t, s, alice, r)
	got, err := s.Get(alice, "r1")
	if err != nil || string(got.Body) != `"<r1>"` || !got.Background || got.Running || !got.Created.Equal(c.now) {
		t.Fatalf("%+v, %v", got, err)
	}
	in, out, err := s.Items(alice, "r1")
	if err != nil || !reflect.DeepEqual(in, r.Input) || !reflect.DeepEqual(out, r.Output) {
		t.Fatalf("%v %v %v", in, out, err)
	}
	if e, err := s.Events(alice, "r1"); err != nil || string(e) != "events" {
		t.Fatalf("%q %v", e, err)
	}
	if text, err := s.Item(alice, "r1-out"); err != nil || string(text) != `{"id":"r1-out"}` {
		t.Fatalf("%q %v", text, err)
	}
}

// TestOwners checks that an owner cannot read, delete or change another owner's records.
func TestOwners(t *testing.T) {
	s, c := testStore(t, "", wide)
	put(t, s, alice, record(c, "r1", "a"))
	if got := ids(s, bob, "r1"); got != "" {
		t.Errorf("another owner reads %s", got)
	}
	if _, err := s.Item(bob, "a"); !errors.Is(err, ErrNotFound) {
		t.Errorf("another owner's item: %v", err)
	}
	if _, _, err := s.Items(bob, "r1"); !errors.Is(err, ErrNotFound) {
		t.Errorf("another owner's items: %v", err)
	}
	if err := s.Delete(bob, "r1"); !errors.Is(err, ErrNotFound) {
		t.Errorf("another owner deletes: %v", err)
	}
	other := record(c, "r1")
	other.Body = json.RawMessage(`"bob"`)
	put(t, s, bob, other)
	if got, err := s.Get(alice, "r1"); err != nil || string(got.Body) != `"<r1>"` {
		t.Errorf("%s, %v", got.Body, err)
	}
}

// TestShared checks that items exist as long as a record refers to them.
func TestShared(t *testing.T) {
	s, c := testStore(t, "", wide)
	put(t, s, alice, record(c, "r1", "a"))
	put(t, s, alice, record(c, "r2", "a", "r1-out", "b"))
	if err := s.Delete(alice, "r1"); err != nil {
		t.Fatal(err)
	}
	in, _, err := s.Items(alice, "r2")
	if err != nil || len(in) != 3 || in[1].ID != "r1-out" {
		t.Fatalf("%v %v", in, err)
	}
	if err := s.Delete(alice, "r2"); err != nil {
		t.Fatal(err)
	}
	if n, err := s.Bytes(); err != nil || n != 0 {
		t.Errorf("%d bytes are left, %v", n, err)
	}
	if _, err := s.Item(alice, "a"); !errors.Is(err, ErrNotFound) {
		t.Errorf("an unreferenced item: %v", err)
	}
}

func TestAge(t *testing.T) {
	s, c := testStore(t, "", Limits{time.Hour, 1 << 30})
	put(t, s, alice, record(c, "r1"))
	c.now = c.now.Add(30 * time.Minute)
	put(t, s, alice, record(c, "r2"))
	c.now = c.now.Add(30 * time.Minute)
	if got := ids(s, alice, "r1", "r2"); got != "r2" {
		t.Errorf("after an hour: %s", got)
	}
	if err := s.Delete(alice, "r1"); !errors.Is(err, ErrNotFound) {
		t.Errorf("deleting what is too old: %v", err)
	}
	before, _ := s.Bytes()
	if err := s.Sweep(); err != nil {
		t.Fatal(err)
	}
	if after, _ := s.Bytes(); after >= before || after <= 0 {
		t.Errorf("%d bytes, swept %d", before, after)
	}
	s.SetLimits(Limits{time.Minute, 1 << 30})
	c.now = c.now.Add(time.Minute)
	if got := ids(s, alice, "r2"); got != "" {
		t.Errorf("after a change of the limit: %s", got)
	}
}

// TestSize checks that the oldest records are evicted first, and that a record which
// exceeds the limit alone is refused without evicting others.
func TestSize(t *testing.T) {
	s, c := testStore(t, "", wide)
	put(t, s, alice, record(c, "r1"))
	one, _ := s.Bytes()
	s.SetLimits(Limits{time.Hour, 3 * one})
	for i := 2; i <= 5; i++ {
		c.now = c.now.Add(time.Second)
		put(t, s, []Owner{alice, bob}[i%2], record(c, fmt.Sprintf("r%d", i)))
	}
	if got := ids(s, alice, "r1", "r2", "r4") + "|" + ids(s, bob, "r3", "r5"); got != "r4|r3 r5" {
		t.Errorf("left %s", got)
	}
	big := record(c, "big")
	big.Events = make([]byte, 3*one)
	var large *TooLargeError
	if err := s.Put(alice, big); !errors.As(err, &large) {
		t.Errorf("too large: %v", err)
	}
	if got := ids(s, alice, "big", "r4") + "|" + ids(s, bob, "r3", "r5"); got != "r4|r3 r5" {
		t.Errorf("after a refusal: %s", got)
	}
	s.SetLimits(Limits{time.Hour, one})
	if err := s.Sweep(); err != nil {
		t.Fatal(err)
	}
	if got := ids(s, alice, "r4") + "|" + ids(s, bob, "r3", "r5"); got != "|r5" {
		t.Errorf("after a smaller limit: %s", got)
	}
}

// TestRestart checks that records persist, and that running ones become interrupted.
func TestRestart(t *testing.T) {
	path := filepath.Join(t.TempDir(), "responses.db")
	s, c := testStore(t, path, wide)
	put(t, s, alice, record(c, "r1", "a"))
	r := record(c, "r2", "a")
	r.Running = true
	put(t, s, alice, r)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	again, err := Open(Config{Path: path, Limits: wide, Now: c.Now, Interrupted: func(b json.RawMessage) json.RawMessage { return json.RawMessage(`"end of ` + string(b[1:])) }})
	if err != nil {
		t.Fatal(err)
	}
	if got, err := again.Get(alice, "r1"); err != nil || string(got.Body) != `"<r1>"` {
		t.Errorf("%s %v", got.Body, err)
	}
	if got, err := again.Get(alice, "r2"); err != nil || string(got.Body) != `"end of <r2>"` || got.Running {
		t.Errorf("%+v %v", got, err)
	}
	for _, id := range []string{"r1", "r2"} {
		if err := again.Delete(alice, id); err != nil {
			t.Error(err)
		}
	}
	if n, err := again.Bytes(); n != 0 || err != nil {
		t.Errorf("%d bytes are left: an orphan is counted wrongly (%v)", n, err)
	}
	if err := again.Close(); err != nil {
		t.Fatal(err)
	}
}

// TestFileErrors checks that a file which cannot be used gives an error of one line with a
// remedy, and is not changed.
func TestFileErrors(t *testing.T) {
	dir := t.TempDir()
	full := filepath.Join(dir, "full.db")
	s, c := testStore(t, full, wide)
	for i := range 200 {
		r := record(c, fmt.Sprint("r", i))
		r.Events = make([]byte, 4000)
		put(t, s, alice, r)
	}
	whole, err := os.ReadFile(full)
	if err != nil {
		t.Fatal(err)
	}
	file := func(name string, b []byte) string {
		p := filepath.Join(dir, name)
		if err := os.WriteFile(p, b, 0o600); err != nil {
			t.Fatal(err)
		}
		return p
	}
	for _, f := range []struct{ path, want string }{
		{full, "is in use by another process; stop that, or give each server a file of its own"},
		{file("half.db", whole[:len(whole)/4]), "is truncated"},
		{file("short.db", whole[:5000]), "move it away to begin with an empty one"},
		{file("text.db", []byte(strings.Repeat("no database ", 2000))), "move it away to begin with an empty one"},
		{dir, "is not a regular file"},
		{filepath.Join(dir, "none", "x.db"), "make its folder"},
	} {
		st, _ := os.Stat(f.path)
		other, err := Open(Config{Path: f.path, Limits: wide})
		var bad *FileError
		if !errors.As(err, &bad) || !strings.Contains(err.Error(), f.want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: %v, want %q", f.path, err, f.want)
		}
		if other != nil {
			other.Close()
		}
		if after, err := os.Stat(f.path); st != nil && (err != nil || after.Size() != st.Size()) {
			t.Errorf("%s was changed", f.path)
		}
	}
}

// TestDamaged checks that damaged pages cause an error, not a crash.
func TestDamaged(t *testing.T) {
	path := filepath.Join(t.TempDir(), "responses.db")
	s, c := testStore(t, path, wide)
	for i := range 300 {
		r := record(c, fmt.Sprint("r", i), fmt.Sprint("i", i))
		r.Body = json.RawMessage(`"` + strings.Repeat("x", 500) + `"`)
		put(t, s, alice, r)
	}
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	r := rand.New(rand.NewPCG(1, 2))
	for round := range 30 {
		bad := append([]byte{}, b...)
		for range 40 {
			at := 2*os.Getpagesize() + r.IntN(len(bad)-2*os.Getpagesize())
			bad[at] = byte(r.Uint32())
		}
		p := filepath.Join(t.TempDir(), fmt.Sprint(round))
		if err := os.WriteFile(p, bad, 0o600); err != nil {
			t.Fatal(err)
		}
		d, err := Open(Config{Path: p, Limits: wide, Now: c.Now})
		if err != nil {
			continue
		}
		for i := range 300 {
			_, _, _ = d.Items(alice, fmt.Sprint("r", i))
			_, _ = d.Get(alice, fmt.Sprint("r", i))
		}
		d.Close()
	}
}

// TestAtRandom checks that after random puts, replacements and deletes under a small limit
// the counted bytes are correct, and that the file is not much larger.
func TestAtRandom(t *testing.T) {
	path := filepath.Join(t.TempDir(), "responses.db")
	limit := Limits{time.Hour, 100 << 10}
	s, c := testStore(t, path, limit)
	s.db.NoSync = true // for speed: this test has no crashes
	r := rand.New(rand.NewPCG(3, 4))
	for i := range 3000 {
		c.now = c.now.Add(time.Second)
		o, id := []Owner{alice, bob}[r.IntN(2)], fmt.Sprint("r", r.IntN(400))
		if r.IntN(10) == 0 {
			if err := s.Delete(o, id); err != nil && !errors.Is(err, ErrNotFound) {
				t.Fatal(err)
			}
			continue
		}
		rec := record(c, id)
		for range r.IntN(6) {
			rec.Input = append(rec.Input, item(fmt.Sprint("i", r.IntN(50))))
		}
		rec.Events = make([]byte, r.IntN(3000))
		put(t, s, o, rec)
		if n, err := s.Bytes(); err != nil || n > limit.MaxBytes {
			t.Fatalf("round %d: %d bytes, %v", i, n, err)
		}
	}
	n, _ := s.Bytes()
	if got := recount(t, s); got != n {
		t.Errorf("%d bytes counted, %d are there", n, got)
	}
	st, err := os.Stat(path)
	if err != nil || st.Size() > 8*limit.MaxBytes {
		t.Errorf("the file has %d bytes for %d, %v", st.Size(), n, err)
	}
	t.Logf("%d bytes in a file of %d", n, st.Size())
}

// recount returns the sum of the sizes of all records and items.
func recount(t *testing.T, s *Store) (n int64) {
	t.Helper()
	if err := s.db.View(func(tx *bolt.Tx) error {
		if err := tx.Bucket(records).ForEach(func(k, _ []byte) error {
			r, err := load(tx, k)
			if err == nil {
				n += r.size(k)
			}
			return err
		}); err != nil {
			return err
		}
		return tx.Bucket(items).ForEach(func(k, v []byte) error { n += itemSize(k, v[4:]); return nil })
	}); err != nil {
		t.Fatal(err)
	}
	return n
}
