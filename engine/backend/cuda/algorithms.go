package cuda

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"time"

	"vapp.dev/engine/backend"
)

// algorithms are the algorithms of cuBLASLt that were the fastest on a device, by shape of product. They
// are valid for one device and one version of the library, which their file names.
type algorithms struct {
	Format  int               `json:"format"`
	Device  string            `json:"device"`
	Library string            `json:"cublaslt"`
	Chosen  map[string]string `json:"chosen"` // by shape, the algorithm's 64 bytes in hexadecimal digits
	Sum     string            `json:"sha256"` // of the other fields
}

const algorithmsFormat = 1

// Bounds of a file of algorithms.
const (
	mostAlgorithms     = 4096
	mostAlgorithmBytes = 2 << 20
)

// newAlgorithms returns an empty set for a device and a version of the library.
func newAlgorithms(f backend.Facts, library string) algorithms {
	device := fmt.Sprintf("%s, compute capability %s, %d multiprocessors", f.Device, f.Capability, f.SMs)
	return algorithms{Format: algorithmsFormat, Device: device, Library: library, Chosen: map[string]string{}}
}

// path returns the set's file in the user's cache folder.
func (a algorithms) path() (string, error) {
	dir, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("%w; set XDG_CACHE_HOME", err)
	}
	sum := sha256.Sum256(fmt.Appendf(nil, "%q %q", a.Device, a.Library))
	return filepath.Join(dir, "vapp", "cublaslt-"+hex.EncodeToString(sum[:6])+".json"), nil
}

// read adds the algorithms of a file. It returns why the file is not used; "": it is, or there is none.
func (a *algorithms) read(path string) (why string) {
	st, err := os.Stat(path)
	switch {
	case os.IsNotExist(err):
		return ""
	case err != nil:
		return err.Error()
	case !st.Mode().IsRegular() || st.Size() > mostAlgorithmBytes:
		return fmt.Sprintf("%s is no file of at most %d KiB", path, mostAlgorithmBytes>>10)
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return err.Error()
	}
	chosen, err := a.parse(text)
	if err != nil {
		return fmt.Sprintf("%s: %v", path, err)
	}
	maps.Copy(a.Chosen, chosen)
	return ""
}

// parse returns the algorithms in a file's text, which must be of a's device and library.
func (a algorithms) parse(text []byte) (map[string]string, error) {
	var file algorithms
	if err := json.Unmarshal(text, &file); err != nil {
		return nil, fmt.Errorf("it is damaged: %w", err)
	}
	switch {
	case file.Format != a.Format:
		return nil, fmt.Errorf("it has format %d, this vapp reads %d", file.Format, a.Format)
	case file.Device != a.Device || file.Library != a.Library:
		return nil, fmt.Errorf("it is of %q and cuBLASLt %q", file.Device, file.Library)
	case len(file.Chosen) > mostAlgorithms:
		return nil, fmt.Errorf("it has %d algorithms; at most %d are read", len(file.Chosen), mostAlgorithms)
	case file.Sum != file.sum():
		return nil, fmt.Errorf("it is damaged: its checksum is another")
	}
	return file.Chosen, nil
}

// sum returns the checksum of all other fields.
func (a algorithms) sum() string {
	h := sha256.New()
	fmt.Fprintf(h, "%d %q %q\n", a.Format, a.Device, a.Library)
	for _, shape := range slices.Sorted(maps.Keys(a.Chosen)) {
		fmt.Fprintf(h, "%q %q\n", shape, a.Chosen[shape])
	}
	return hex.EncodeToString(h.Sum(nil))
}

// write replaces the file. If it would have too many algorithms, those of used alone are kept.
func (a algorithms) write(path string, used map[string]bool) error {
	if len(a.Chosen) > mostAlgorithms {
		a.Chosen = maps.Clone(a.Chosen)
		maps.DeleteFunc(a.Chosen, func(shape, _ string) bool { return !used[shape] })
		for _, shape := range slices.Sorted(maps.Keys(a.Chosen)) {
			if len(a.Chosen) > mostAlgorithms {
				delete(a.Chosen, shape)
			}
		}
	}
	a.Sum = a.sum()
	var text bytes.Buffer
	enc := json.NewEncoder(&text)
	enc.SetIndent("", " ")
	if err := enc.Encode(a); err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	f, err := os.CreateTemp(filepath.Dir(path), filepath.Base(path)+".*")
	if err != nil {
		return err
	}
	defer os.Remove(f.Name())
	_, err = f.Write(text.Bytes())
	if err == nil {
		err = f.Chmod(fs.FileMode(0o644))
	}
	if closed := f.Close(); err == nil {
		err = closed
	}
	if err != nil {
		return err
	}
	return os.Rename(f.Name(), path)
}

// fastest returns the index of the shortest time; those that failed are negative. It returns −1 if all
// failed.
func fastest(times []time.Duration) int {
	best := -1
	for i, t := range times {
		if t >= 0 && (best < 0 || t < times[best]) {
			best = i
		}
	}
	return best
}
