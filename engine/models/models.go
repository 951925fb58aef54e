// Package models is the model families, one file each: which weights a family
// has, which KV classes, and its forward pass, recorded once against the ops
// of engine/backend.
package models

import (
	"fmt"
	"strings"

	"vapp.dev/engine/backend"
	"vapp.dev/engine/checkpoint"
	"vapp.dev/kernels"
)

// Build says how a family is applied to a checkpoint. The zero value is the whole
// model as it is stored, text only.
type Build struct {
	Shard backend.Shard // of the weights; zero: Whole
	// Quantize is what linear layers and experts become while they are packed;
	// Invalid: they stay as stored.
	Quantize kernels.Format
	// Draft is how many tokens the model's own head proposes a step; 0: its weights
	// are left out.
	Draft int
	// Vision keeps the vision tower.
	Vision bool
	// Rebuild stores of K only what cannot be had from V.
	Rebuild bool
}

// Model is a family applied to one checkpoint and one rank of it.
type Model interface {
	// Weights lists what a device must hold, in arena order.
	Weights() []backend.WeightSpec
	// Classes is the KV geometry for a block size and format; slabs are not
	// placed yet.
	Classes(blockSize int, f kernels.Format) []backend.KVClass
	// Record writes the forward pass of a step into p, whose Name, Bucket and
	// Classes the caller has set.
	Record(p *backend.Program) (*backend.Program, error)
	// Vocab is the width of the logits.
	Vocab() int
}

// Encoder is what a Model with a vision tower has besides.
type Encoder interface {
	// Patches is the most patches that one item of a request may have.
	Patches() int
	// RecordEncoder writes the tower's pass over p.Bucket.Tokens patches into p.
	RecordEncoder(p *backend.Program) (*backend.Program, error)
}

// family is one row of the table of architectures.
type family struct {
	architecture string
	tensors      func(checkpoint.Config) []checkpoint.TensorInfo
	build        func(checkpoint.Config, *loader) (Model, error)
	check        func(checkpoint.Config) error
	// skip names tensors that a build which does not ask for them never reads: vision
	// towers, heads that draft. They may be absent. nil: none.
	skip func(tensor string) bool
}

// families is the closed list of what the engine runs.
var families = []family{
	{architecture: "LlamaForCausalLM", tensors: llamaTensors, build: newLlama, check: checkLlama},
}

// UnsupportedError names an architecture or setting that no family covers.
type UnsupportedError struct{ What, Why string }

func (e *UnsupportedError) Error() string {
	return fmt.Sprintf("model: %s is not supported: %s", e.What, e.Why)
}

func find(cfg checkpoint.Config) (family, error) {
	var known []string
	for _, f := range families {
		if f.architecture == cfg.Architecture {
			return f, f.check(cfg)
		}
		known = append(known, f.architecture)
	}
	return family{}, &UnsupportedError{"architecture " + cfg.Architecture, "vapp runs " + strings.Join(known, ", ")}
}

// Tensors lists the tensors that a checkpoint with this config has, in the
// format its torch_dtype names: what a dummy checkpoint is made of.
func Tensors(cfg checkpoint.Config) ([]checkpoint.TensorInfo, error) {
	f, err := find(cfg)
	if err != nil {
		return nil, err
	}
	return f.tensors(cfg), nil
}

// Dtype is the number format that a torch_dtype names; F16 for GGUF files,
// whose activations have none.
func Dtype(cfg checkpoint.Config) kernels.Format {
	switch cfg.TorchDtype {
	case "float32":
		return kernels.F32
	case "bfloat16":
		return kernels.BF16
	case "float16":
		return kernels.F16
	}
	if cfg.Dialect == "gguf" {
		return kernels.F16
	}
	return kernels.F32
}

// New applies the family of c's architecture. It reads headers only, and
// fails where the checkpoint's tensors disagree with its config, naming the first
// few and their number.
func New(c *checkpoint.Checkpoint, b Build) (Model, error) {
	if b.Shard.World == 0 {
		b.Shard = backend.Whole
	}
	cfg := c.Config()
	f, err := find(cfg)
	if err != nil {
		return nil, err
	}
	q, err := quantOf(cfg)
	if err != nil {
		return nil, err
	}
	if err := agree(c, f, f.tensors(cfg)); err != nil {
		return nil, err
	}
	l := &loader{src: c, Build: b, quant: q}
	m, err := f.build(cfg, l)
	if err == nil {
		err = l.err
	}
	if err != nil {
		return nil, err
	}
	return m, nil
}
