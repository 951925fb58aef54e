// Package checkpoint reads the model on disk: headers, config, tensors, and the text files for the
// tokenizer and chat templates. It must not know a device or a model family, and it never changes
// the value of a weight.
//
// Open reads the headers of a Hugging Face directory or a GGUF file, and presents both under
// Hugging Face names. Codes, scales and zero points that a checkpoint stores apart (GPTQ, AWQ,
// compressed-tensors, NVFP4) become one tensor (grouped.go). Tensor bytes are read by rows (ReadRows) or through a mapped view (View). The
// files are untrusted: any defect is an *Error that names file and field. Start reading at Open in
// checkpoint.go and Config in config.go.
package checkpoint

import (
	"os"
	"path/filepath"
	"strings"
)

// Source is a source of weights: a Checkpoint with real or dummy weights.
type Source interface {
	// Tensors lists all tensors, in the order of their bytes.
	Tensors() []TensorInfo
	// Tensor returns a tensor by its Hugging Face name.
	Tensor(name string) (TensorInfo, bool)
	// ReadRows fills dst with rows row0 to row0+rows-1 of a tensor, in its stored Format and in
	// Hugging Face row order. len(dst) is rows·RowBytes.
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
	dummy   *dummy // not nil if the weights are dummy weights
}

var _ Source = (*Checkpoint)(nil)

// Open reads the headers of the model at path: a Hugging Face directory
// (config.json and model.safetensors, or model.safetensors.index.json and its
// shards) or a GGUF file of version 2 or 3, the first file of a split one.
func Open(path string) (*Checkpoint, error) { return open(path, true, Edits{}) }

// OpenMetadata is Open for a directory that may have no weights, only config, tokenizer and
// templates. It lists the tensors if weights are present.
func OpenMetadata(path string) (*Checkpoint, error) { return open(path, false, Edits{}) }

// Open is the function Open with the edits of the config.
func (e Edits) Open(path string) (*Checkpoint, error) { return open(path, true, e) }

// OpenMetadata is the function OpenMetadata with the edits of the config.
func (e Edits) OpenMetadata(path string) (*Checkpoint, error) { return open(path, false, e) }

func open(path string, weights bool, e Edits) (*Checkpoint, error) {
	st, err := os.Stat(path)
	if err != nil {
		return nil, openFailed(path, err)
	}
	c := &Checkpoint{path: path, byName: map[string]int{}, files: map[string]*file{}}
	if st.IsDir() {
		err = c.openDir(weights, e)
	} else {
		err = c.openGGUF(e)
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

// Path returns the path that was opened.
func (c *Checkpoint) Path() string { return c.path }

// Config returns the normalized config of the model.
func (c *Checkpoint) Config() Config { return c.cfg }

// Tensors lists all tensors, in the order of their bytes in each file.
func (c *Checkpoint) Tensors() []TensorInfo { return c.tensors }

// Tensor returns a tensor by its Hugging Face name. A name with ".experts.*." is a stack: the tensors
// of all experts as one [experts, …], if they have one shape and format. A name with DecodedSuffix has
// the numbers of a quantized tensor.
func (c *Checkpoint) Tensor(name string) (TensorInfo, bool) {
	i, ok := c.byName[name]
	if !ok && strings.HasSuffix(name, DecodedSuffix) {
		return c.decoded(name)
	}
	if !ok {
		return c.stack(name)
	}
	return c.tensors[i], true
}

// Want returns a tensor and fails unless it has exactly this shape.
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

// add appends a tensor to the list; the caller has checked its offset in the file.
func (c *Checkpoint) add(t TensorInfo) error {
	if i, twice := c.byName[t.Name]; twice {
		return fault(t.File, t.Name, "is also in %s", filepath.Base(c.tensors[i].File))
	}
	c.byName[t.Name] = len(c.tensors)
	c.tensors = append(c.tensors, t)
	return nil
}
