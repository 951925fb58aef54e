package checkpoint

import (
	"crypto/sha256"
	"fmt"
	"hash"
	"maps"
	"os"
	"path/filepath"
	"slices"
)

// fingerprintBytes is how many bytes at each end of a tensor the fingerprint covers.
const fingerprintBytes = 4096

// Fingerprint returns a digest that changes when the weights change, without reading all of them.
// It covers the name, size and modification time (in seconds, as archives keep it) of every file,
// and the name, shape, format, offset and both ends of every tensor. A training step changes every
// tensor. The only change it misses is an edit in the middle of a tensor with the file's old time
// restored.
func (c *Checkpoint) Fingerprint() ([32]byte, error) { return c.digest(true) }

// Contents is Fingerprint without the files' times and names of folders, so that copies on other machines have the same.
func (c *Checkpoint) Contents() ([32]byte, error) { return c.digest(false) }

func (c *Checkpoint) digest(times bool) ([32]byte, error) {
	h := sha256.New()
	if c.dummy != nil {
		fmt.Fprintf(h, "dummy weights of seed %d\n", c.dummy.seed)
	}
	for _, path := range slices.Sorted(maps.Keys(c.files)) {
		st, err := os.Stat(path)
		if err != nil {
			return [32]byte{}, openFailed(path, err)
		}
		at := st.ModTime().Unix()
		if !times {
			at = 0
		}
		fmt.Fprintf(h, "%q %d %d\n", filepath.Base(path), st.Size(), at)
	}
	for _, t := range c.tensors {
		fmt.Fprintf(h, "%q %v %v %d %d %d %v\n", t.Name, t.Shape, t.Format, t.Offset, t.Bytes, t.RopeHead, t.swapped)
		if t.tiles.each > 0 || t.negated {
			fmt.Fprintf(h, "heads in tiles %v, negated %v\n", t.tiles, t.negated)
		}
		stored := []TensorInfo{t}
		if j := t.joined; j != nil {
			fmt.Fprintf(h, "%+v %v\n", j.grouping, j.order)
			stored = []TensorInfo{j.codes, j.scales, j.zeros}
		}
		for _, s := range stored {
			if err := c.ends(s, h); err != nil {
				return [32]byte{}, err
			}
		}
	}
	return [32]byte(h.Sum(nil)), nil
}

// ends adds both ends of a tensor, as stored, to the hash.
func (c *Checkpoint) ends(t TensorInfo, h hash.Hash) error {
	f := c.files[t.File]
	if f == nil {
		return nil // dummy weights
	}
	n := min(t.Bytes, fingerprintBytes)
	b := make([]byte, n)
	for _, at := range []int64{t.Offset, t.Offset + t.Bytes - n} {
		if err := f.readAt(b, at); err != nil {
			return err
		}
		h.Write(b)
	}
	return nil
}
