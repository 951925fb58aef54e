package responses

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"time"

	bolt "go.etcd.io/bbolt"
)

// entry is the stored form of a record: JSON, a zero byte, then the body. Items and
// events are in their own buckets.
type entry struct {
	Created    int64           `json:"created"` // ns since 1970
	Background bool            `json:"background,omitempty"`
	Running    bool            `json:"running,omitempty"`
	Events     int             `json:"events,omitempty"` // bytes
	Input      []string        `json:"input"`
	Output     []string        `json:"output"`
	Body       json.RawMessage `json:"-"`
}

// overhead is the estimated overhead of a key in bytes.
const overhead = 32

func keyOf(o Owner, id string) []byte { return append(o[:], id...) }

// orderKey returns the key in the bucket order, which sorts by time.
func (r *entry) orderKey(key []byte) []byte {
	return append(binary.BigEndian.AppendUint64(nil, uint64(r.Created)), key...)
}

// size returns the counted bytes of a record without its items.
func (r *entry) size(key []byte) int64 {
	n := 3*(len(key)+overhead) + len(r.Body) + r.Events + 8
	for _, list := range [][]string{r.Input, r.Output} {
		for _, id := range list {
			n += len(id) + 3
		}
	}
	return int64(n)
}

func itemSize(key []byte, item json.RawMessage) int64 {
	return int64(len(key) + overhead + 4 + len(item))
}

func load(tx *bolt.Tx, key []byte) (*entry, error) {
	b := tx.Bucket(records).Get(key)
	if b == nil {
		return nil, ErrNotFound
	}
	var r entry
	head, body, ok := bytes.Cut(b, []byte{0})
	if err := json.Unmarshal(head, &r); err != nil || !ok {
		return nil, fmt.Errorf("record %q cannot be read: %v", key, err)
	}
	r.Body = append(json.RawMessage{}, body...)
	return &r, nil
}

func (r *entry) save(tx *bolt.Tx, key []byte) error {
	b, err := json.Marshal(r)
	if err != nil {
		return fmt.Errorf("record %q: %w", key, err)
	}
	return tx.Bucket(records).Put(key, append(append(b, 0), r.Body...))
}

// insert adds a record, its items and its events.
func insert(tx *bolt.Tx, o Owner, rec Record) error {
	key := keyOf(o, rec.ID)
	r := &entry{
		Created: rec.Created.UnixNano(), Background: rec.Background, Running: rec.Running, Events: len(rec.Events), Body: rec.Body,
	}
	var n int64
	for _, list := range []struct {
		from []Item
		to   *[]string
	}{{rec.Input, &r.Input}, {rec.Output, &r.Output}} {
		*list.to = make([]string, len(list.from))
		for i, item := range list.from {
			added, err := addReference(tx, keyOf(o, item.ID), item.JSON)
			if err != nil {
				return err
			}
			n += added
			(*list.to)[i] = item.ID
		}
	}
	if err := r.save(tx, key); err != nil {
		return err
	}
	if rec.Events != nil {
		if err := tx.Bucket(events).Put(key, rec.Events); err != nil {
			return err
		}
	}
	if rec.Running {
		if err := tx.Bucket(running).Put(key, nil); err != nil {
			return err
		}
	}
	if err := tx.Bucket(order).Put(r.orderKey(key), nil); err != nil {
		return err
	}
	return count(tx, n+r.size(key))
}

// addReference adds an item, or increments its reference count. It returns the added
// bytes.
func addReference(tx *bolt.Tx, key []byte, item json.RawMessage) (int64, error) {
	b := tx.Bucket(items)
	var n int64
	refs := uint32(1)
	if old := b.Get(key); len(old) >= 4 {
		if !bytes.Equal(old[4:], item) {
			return 0, fmt.Errorf("item %q exists with another content", key[len(Owner{}):])
		}
		refs = binary.BigEndian.Uint32(old) + 1
	} else {
		n = itemSize(key, item)
	}
	return n, b.Put(key, append(binary.BigEndian.AppendUint32(nil, refs), item...))
}

// remove removes a record, and the items that no other record refers to.
func remove(tx *bolt.Tx, key []byte) error {
	r, err := load(tx, key)
	if err != nil {
		return err
	}
	n := r.size(key)
	b := tx.Bucket(items)
	for _, list := range [][]string{r.Input, r.Output} {
		for _, id := range list {
			k := append(append([]byte{}, key[:len(Owner{})]...), id...)
			old := b.Get(k)
			if len(old) < 4 {
				continue
			}
			refs := binary.BigEndian.Uint32(old) - 1
			if refs == 0 {
				n += itemSize(k, old[4:])
				err = b.Delete(k)
			} else {
				err = b.Put(k, append(binary.BigEndian.AppendUint32(nil, refs), old[4:]...))
			}
			if err != nil {
				return err
			}
		}
	}
	for bucket, k := range map[string][]byte{string(records): key, string(events): key, string(running): key, string(order): r.orderKey(key)} {
		if err := tx.Bucket([]byte(bucket)).Delete(k); err != nil {
			return err
		}
	}
	return count(tx, -n)
}

// oldest returns the oldest record other than but; nil for none.
func oldest(tx *bolt.Tx, but []byte) (key []byte, created time.Time) {
	c := tx.Bucket(order).Cursor()
	for k, _ := c.First(); k != nil; k, _ = c.Next() {
		if len(k) > 8 && !bytes.Equal(k[8:], but) {
			return append([]byte{}, k[8:]...), time.Unix(0, int64(binary.BigEndian.Uint64(k)))
		}
	}
	return nil, time.Time{}
}
