// Package checkpoint is the model on disk: headers, config, tensor views.
//
// Open reads a Hugging Face directory or a GGUF file, headers only, and shows
// both under the same Hugging Face names. Tensor bytes are reached row by row
// (ReadRows) or as a mapped view (View); nothing here uploads or converts them.
// The files are foreign: whatever is wrong with them is an *Error that names
// file and field.
package checkpoint

import (
	"os"
	"path/filepath"
	"strings"
)

// Source is where weights come from: a Checkpoint, with real or dummy weights.
type Source interface {
	// Tensors lists all tensors, in the order of their bytes.
	Tensors() []TensorInfo
	// Tensor finds one by its Hugging Face name.
	Tensor(name string) (TensorInfo, bool)
	// ReadRows fills dst with rows row0 to row0+rows-1 of a tensor, stored in its
	// Format, in Hugging Face row order. len(dst) is rows·RowBytes.
	ReadRows(name string, row0, rows int, dst []byte) error
}

// Checkpoint is an opened model. Its methods may be called from several
// goroutines at once, except Close.
type Checkpoint struct {
	path    string
	cfg     Config
	text    text
	tensors []TensorInfo
	byName  map[string]int
	files   map[string]*file
	dummy   *dummy // not nil when the weights are made up
}

var _ Source = (*Checkpoint)(nil)

// Open reads the headers of the model at path: a Hugging Face directory
// (config.json and model.safetensors, or model.safetensors.index.json and its
// shards) or a GGUF file of version 3.
func Open(path string) (*Checkpoint, error) { return open(path, true) }

// OpenMetadata is Open for a directory whose weights may be absent: config,
// tokenizer and templates alone. Tensors are listed where they are there.
func OpenMetadata(path string) (*Checkpoint, error) { return open(path, false) }

func open(path string, weights bool) (*Checkpoint, error) {
	st, err := os.Stat(path)
	if err != nil {
		return nil, openFailed(path, err)
	}
	c := &Checkpoint{path: path, byName: map[string]int{}, files: map[string]*file{}}
	if st.IsDir() {
		err = c.openDir(weights)
	} else {
		err = c.openGGUF()
	}
	if err != nil {
		c.Close()
		return nil, err
	}
	return c, nil
}

// Close unmaps and closes the files. Views are invalid afterwards.
func (c *Checkpoint) Close() error {
	var first error
	for _, f := range c.files {
		if err := f.close(); first == nil && err != nil {
			first = failed(f.path, "", err)
		}
	}
	c.files = nil
	return first
}

// Path returns what was opened.
func (c *Checkpoint) Path() string { return c.path }

// Config returns the normalised facts of the model.
func (c *Checkpoint) Config() Config { return c.cfg }

// Tensors lists all tensors, in the order of their bytes in each file.
func (c *Checkpoint) Tensors() []TensorInfo { return c.tensors }

// Tensor finds a tensor by its Hugging Face name.
func (c *Checkpoint) Tensor(name string) (TensorInfo, bool) {
	i, ok := c.byName[name]
	if !ok {
		return TensorInfo{}, false
	}
	return c.tensors[i], true
}

// Want finds a tensor that must be there with exactly this shape.
func (c *Checkpoint) Want(name string, shape ...int64) (TensorInfo, error) {
	t, ok := c.Tensor(name)
	if !ok {
		return t, fault(c.path, name, "is not in the checkpoint")
	}
	same := len(shape) == len(t.Shape)
	for i := 0; same && i < len(shape); i++ {
		same = shape[i] == t.Shape[i]
	}
	if !same {
		return t, fault(t.file(c), name, "has shape %v, the config asks for %v", t.Shape, shape)
	}
	return t, nil
}

func (t TensorInfo) file(c *Checkpoint) string {
	if t.File != "" {
		return t.File
	}
	return c.path
}

// add lists a tensor; the caller has checked its place in the file.
func (c *Checkpoint) add(t TensorInfo) error {
	if i, twice := c.byName[t.Name]; twice {
		return fault(t.File, t.Name, "is also in %s", filepath.Base(c.tensors[i].File))
	}
	c.byName[t.Name] = len(c.tensors)
	c.tensors = append(c.tensors, t)
	return nil
}

// isGGUF reports whether a path asks for the GGUF reader by its name.
func isGGUF(path string) bool { return strings.EqualFold(filepath.Ext(path), ".gguf") }
