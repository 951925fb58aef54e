package steps

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"time"

	"vapp.dev/engine/speed"
)

// File is a cost model as vapp bench steps writes it.
type File struct {
	Format   int         `json:"format"`
	Kind     string      `json:"kind"`
	Model    string      `json:"model"` // as the profile names its source, without the folder
	Backend  string      `json:"backend"`
	KVFormat string      `json:"kv_format"`
	Device   string      `json:"device"`
	Threads  string      `json:"threads,omitempty"` // of a CPU
	Version  string      `json:"version"`           // of vapp
	Measured time.Time   `json:"measured"`
	Count    int         `json:"steps"`
	Steps    speed.Steps `json:"model_of_steps"`
}

// The format that this version reads and writes.
const (
	format = 1
	kind   = "vapp-steps"
)

// FileError reports a file that is no usable cost model.
type FileError struct{ Path, Why string }

func (e *FileError) Error() string {
	return fmt.Sprintf("%s: %s; write one with vapp bench steps", e.Path, e.Why)
}

// Bytes returns the file.
func (f File) Bytes() ([]byte, error) {
	f.Format, f.Kind = format, kind
	text, err := json.MarshalIndent(f, "", "  ")
	return append(text, '\n'), err
}

// largest is the size of the largest file that is read.
const largest = 1 << 20

// Read reads a cost model. The error is a *FileError for a file that is none.
func Read(path string) (*File, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("cost model: %w", err)
	}
	defer file.Close()
	text, err := io.ReadAll(io.LimitReader(file, largest+1))
	if err != nil {
		return nil, fmt.Errorf("cost model: %w", err)
	}
	return parse(path, text)
}

func parse(path string, text []byte) (*File, error) {
	if len(text) > largest {
		return nil, &FileError{path, fmt.Sprintf("it has more than %d bytes", largest)}
	}
	var f File
	d := json.NewDecoder(bytes.NewReader(text))
	if err := d.Decode(&f); err != nil {
		return nil, &FileError{path, fmt.Sprintf("no JSON of a cost model: %v", err)}
	}
	switch {
	case f.Kind != kind:
		return nil, &FileError{path, fmt.Sprintf("kind is %.40q, want %q", f.Kind, kind)}
	case f.Format != format:
		return nil, &FileError{path, fmt.Sprintf("format is %d, this version reads %d", f.Format, format)}
	}
	if err := f.Steps.Check(); err != nil {
		return nil, &FileError{path, err.Error()}
	}
	return &f, nil
}

// MismatchError reports a cost model of another engine than the profile's.
type MismatchError struct{ Path, What, Have, Want string }

func (e *MismatchError) Error() string {
	return fmt.Sprintf("%s: it was measured with %s %s, and the profile has %s; measure this profile with vapp bench steps", e.Path, e.What, e.Have, e.Want)
}

// Matches returns a *MismatchError where the model is of another engine than want is.
func (f *File) Matches(path string, want File) error {
	for _, m := range [][3]string{{"model", f.Model, want.Model}, {"backend", f.Backend, want.Backend}, {"KV cache", f.KVFormat, want.KVFormat}} {
		if m[1] != m[2] {
			return &MismatchError{path, m[0], m[1], m[2]}
		}
	}
	return nil
}
