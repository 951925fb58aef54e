// Package ratefile keeps the rates that vapp doctor --measure found, one file for each machine, in the
// user's cache folder. A file of another processor, of other kernels, or one that was cut is never
// used: reading it gives an error that says which.
//
// It must not measure or predict. Start reading at Read.
package ratefile

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"vapp.dev/engine/backend"
	"vapp.dev/engine/speed"
)

// Key is what rates depend on.
type Key struct {
	Processor string   `json:"processor"`
	Cores     int      `json:"cores"`
	MemoryGiB int64    `json:"memory_gib"`
	Variants  []string `json:"variants"`
	Kernels   string   `json:"kernels"` // version of the kernels and of what is measured
}

// KeyOf returns the key of a machine. kernels is the version of this binary's kernels.
func KeyOf(f backend.Facts, kernels string) Key {
	return Key{f.Device, f.Cores, (f.TotalBytes + 1<<29) >> 30, slices.Clone(f.Variants), fmt.Sprintf("%d-%s", speed.Version, kernels)}
}

// Path returns the file of the key's machine in the user's cache folder. It does not depend on the
// version of the kernels, so that a measurement replaces that of an earlier version.
func Path(k Key) (string, error) {
	dir, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("measured rates: %w; set XDG_CACHE_HOME", err)
	}
	sum := sha256.Sum256(fmt.Appendf(nil, "%q %d %d %q", k.Processor, k.Cores, k.MemoryGiB, k.Variants))
	return filepath.Join(dir, "vapp", "speed-"+hex.EncodeToString(sum[:6])+".json"), nil
}

// UnusableError reports a file that is not used, and why.
type UnusableError struct {
	Path string
	Why  string
}

func (e *UnusableError) Error() string {
	return fmt.Sprintf("%s: %s; measure again: vapp doctor --measure", e.Path, e.Why)
}

// document is the file.
type document struct {
	Format   int             `json:"format"`
	Key      Key             `json:"machine"`
	Measured time.Time       `json:"measured"`
	Sum      string          `json:"sha256"` // of Rates without white space
	Rates    json.RawMessage `json:"rates"`
}

const format = 1

// most is the size of the largest file that is read.
const most = 1 << 20

// Read returns the rates of a file and when they were measured. The error wraps fs.ErrNotExist where there
// is no file, and is an *UnusableError for one that is torn, of another machine or of other kernels.
func Read(path string, want Key) (*speed.Rates, time.Time, error) {
	st, err := os.Stat(path)
	if err != nil {
		return nil, time.Time{}, err
	}
	if !st.Mode().IsRegular() || st.Size() > most {
		return nil, time.Time{}, &UnusableError{path, fmt.Sprintf("it is no file of at most %d KiB", most>>10)}
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, time.Time{}, err
	}
	r, at, why := parse(text, want)
	if why != "" {
		return nil, time.Time{}, &UnusableError{path, why}
	}
	return r, at, nil
}

// parse returns the rates of a file's text, or why they are not used.
func parse(text []byte, want Key) (_ *speed.Rates, _ time.Time, why string) {
	var d document
	if err := json.Unmarshal(text, &d); err != nil {
		return nil, d.Measured, "it is damaged: " + err.Error()
	}
	if d.Format != format {
		return nil, d.Measured, fmt.Sprintf("it has format %d, this vapp reads %d", d.Format, format)
	}
	if sumOf(d.Rates) != d.Sum {
		return nil, d.Measured, "it is damaged: its checksum is another"
	}
	if other := want.differs(d.Key); other != "" {
		return nil, d.Measured, other
	}
	r := &speed.Rates{}
	if err := json.Unmarshal(d.Rates, r); err != nil {
		return nil, d.Measured, "it is damaged: " + err.Error()
	}
	if err := r.Check(); err != nil {
		return nil, d.Measured, err.Error()
	}
	return r, d.Measured, ""
}

// differs returns how a file's machine differs, "" where it does not.
func (k Key) differs(file Key) string {
	switch {
	case file.Processor != k.Processor || file.Cores != k.Cores:
		return fmt.Sprintf("it was measured on %s with %d cores, this is %s with %d", file.Processor, file.Cores, k.Processor, k.Cores)
	case file.MemoryGiB != k.MemoryGiB:
		return fmt.Sprintf("it was measured with %d GiB of memory, there are %d", file.MemoryGiB, k.MemoryGiB)
	case !slices.Equal(file.Variants, k.Variants):
		return fmt.Sprintf("it was measured with the variants %s, this machine has %s", strings.Join(file.Variants, ", "), strings.Join(k.Variants, ", "))
	case file.Kernels != k.Kernels:
		return fmt.Sprintf("it is stale: measured with kernels %s, this vapp has %s", file.Kernels, k.Kernels)
	}
	return ""
}

// sumOf returns the checksum of JSON, whatever its white space.
func sumOf(text json.RawMessage) string {
	var b bytes.Buffer
	if json.Compact(&b, text) != nil {
		return ""
	}
	sum := sha256.Sum256(b.Bytes())
	return hex.EncodeToString(sum[:])
}

// Writable returns why Write could not keep a file at path. It creates the folder.
func Writable(path string) error {
	f, err := temporary(path)
	if err != nil {
		return fmt.Errorf("measured rates: %w; set XDG_CACHE_HOME to a folder that can be written", err)
	}
	return errors.Join(f.Close(), os.Remove(f.Name()))
}

// temporary creates a file in the folder of path, and the folder.
func temporary(path string) (*os.File, error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return nil, err
	}
	return os.CreateTemp(filepath.Dir(path), filepath.Base(path)+".*")
}

// Write replaces the file atomically: a reader sees the old one or the whole new one.
func Write(path string, k Key, r *speed.Rates, at time.Time) (err error) {
	text, err := json.Marshal(r)
	if err != nil {
		return err
	}
	out, err := json.MarshalIndent(document{format, k, at.UTC().Truncate(time.Second), sumOf(text), text}, "", " ")
	if err != nil {
		return err
	}
	f, err := temporary(path)
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, os.Remove(f.Name()))
		}
	}()
	_, err = f.Write(append(out, '\n'))
	if err = errors.Join(err, f.Sync(), f.Close()); err != nil {
		return err
	}
	return os.Rename(f.Name(), path)
}
