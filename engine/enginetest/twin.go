package enginetest

import (
	"encoding/binary"
	"os"
	"path/filepath"

	"vapp.dev/engine/checkpoint"
	"vapp.dev/kernels"
)

// Tensor is a tensor of a checkpoint with its bytes.
type Tensor struct {
	Name   string
	Shape  []int64
	Format kernels.Format
	Data   []byte
}

// ReadTensors returns the tensors of a checkpoint.
func ReadTensors(c *checkpoint.Checkpoint) ([]Tensor, error) {
	var out []Tensor
	for _, t := range c.Tensors() {
		x := Tensor{Name: t.Name, Shape: t.Shape, Format: t.Format, Data: make([]byte, t.Bytes)}
		if err := c.ReadRows(t.Name, 0, int(t.Rows()), x.Data); err != nil {
			return nil, err
		}
		out = append(out, x)
	}
	return out, nil
}

// WriteTensors writes a Hugging Face directory of a config.json and one file of tensors to dir, which
// exists.
func WriteTensors(dir string, config []byte, list []Tensor) error {
	return WriteShards(dir, config, list, 1)
}

// WriteShards is WriteTensors with that many files of tensors, and an index if there are several.
func WriteShards(dir string, config []byte, list []Tensor, shards int) error {
	var infos []checkpoint.TensorInfo
	data := map[string][]byte{}
	for _, t := range list {
		infos, data[t.Name] = append(infos, checkpoint.TensorInfo{Name: t.Name, Shape: t.Shape, Format: t.Format}), t.Data
	}
	files, err := shardFiles(infos, data, shards)
	if err != nil {
		return err
	}
	files["config.json"] = config
	for name, b := range files {
		if err := os.WriteFile(filepath.Join(dir, name), b, 0o644); err != nil {
			return err
		}
	}
	return nil
}

// WriteGGUFTensors writes a GGUF file of tensors, which have llama.cpp's names, and of keys: ints
// become uint32, floats float32.
func WriteGGUFTensors(path string, keys map[string]any, list []Tensor) error {
	w := &ggufWriter{}
	for name, value := range keys {
		w.key(name, value)
	}
	var heads, body []byte
	for _, t := range list {
		heads = appendTensor(heads, t.Name, t.Format, t.Shape, len(body))
		body = append(body, t.Data...)
		body = append(body, make([]byte, -len(body)&31)...)
	}
	le := binary.LittleEndian
	out := le.AppendUint32([]byte("GGUF"), 3)
	out = le.AppendUint64(le.AppendUint64(out, uint64(len(list))), uint64(w.keys))
	out = append(append(out, w.b...), heads...)
	out = append(out, make([]byte, -len(out)&31)...)
	return os.WriteFile(path, append(out, body...), 0o644)
}
