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

// fingerprintBytes of each end of a tensor are part of the fingerprint.
const fingerprintBytes = 4096

// Fingerprint is a digest that changes when weights do, without reading them all: of every
// file its name, its size and when it was changed, to the second, as archives keep it;
// of every tensor its name, shape, format and place, and the bytes of both its ends. A
// training step changes every tensor; only a file that was changed in the midst of a tensor
// and given its old time again looks the same.
func (c *Checkpoint) Fingerprint() ([32]byte, error) {
	h := sha256.New()
	if c.dummy != nil {
		fmt.Fprintf(h, "dummy weights of seed %d\n", c.dummy.seed)
	}
	for _, path := range slices.Sorted(maps.Keys(c.files)) {
		st, err := os.Stat(path)
		if err != nil {
			return [32]byte{}, openFailed(path, err)
		}
		fmt.Fprintf(h, "%q %d %d\n", filepath.Base(path), st.Size(), st.ModTime().Unix())
	}
	for _, t := range c.tensors {
		fmt.Fprintf(h, "%q %v %v %d %d %d %v\n", t.Name, t.Shape, t.Format, t.Offset, t.Bytes, t.RopeHead, t.swapped)
		if err := c.ends(t, h); err != nil {
			return [32]byte{}, err
		}
	}
	return [32]byte(h.Sum(nil)), nil
}

// ends adds both ends of a tensor as the file has them.
func (c *Checkpoint) ends(t TensorInfo, h hash.Hash) error {
	f := c.files[t.File]
	if f == nil {
		return nil // made up
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
