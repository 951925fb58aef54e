// Package models is the model families, one file each: which weights a family
// has, which KV classes, and its forward pass, recorded once against the ops
// of engine/backend.
package models

import (
	"fmt"
	"strings"
	"unicode"

	"vapp.dev/engine/backend"
	"vapp.dev/engine/checkpoint"
	"vapp.dev/kernels"
)

// Build says how a family is applied to a checkpoint. The zero value is the whole
// model as it is stored, text only.
type Build struct {
	Shard backend.Shard // of the weights: tensor parallel; zero: Whole
	// Pipe is the rank's place in the list of layers: pipeline parallel; zero: Whole.
	Pipe backend.Shard
	// Dtype is what unquantized matrices become while they are packed: F32, F16 or
	// BF16; Invalid: as stored.
	Dtype kernels.Format
	// Quantize is what linear layers and experts become while they are packed,
	// F8E4M3; Invalid: they stay as stored.
	Quantize kernels.Format
	// Draft is how many tokens the model's own head, or a draft model, proposes a step;
	// 0: its weights are left out.
	Draft int
	// Verify is how many proposed tokens a step verifies for each sequence, whoever
	// proposes them: models with recurrent state keep one behind each. Below Draft: Draft.
	Verify int
	// Vision keeps the vision tower.
	Vision bool
	// Rebuild stores of K only what cannot be had from V.
	Rebuild bool
	// Pooling is what the last hidden states become where no tokens are drawn of them.
	Pooling Pooling
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
	// pipes says that build honours Build.Pipe.
	pipes bool
	// drafts says that build makes a dense, which NewWithDraft can record ahead of a step.
	drafts bool
}

// families is the closed list of what the engine runs.
var families = []family{
	denseFamily("LlamaForCausalLM", llamaStyle),
	denseFamily("Qwen2ForCausalLM", qwen2Style),
	denseFamily("Qwen3ForCausalLM", qwen3Style),
	denseFamily("MistralForCausalLM", mistralStyle),
	{architecture: "GptOssForCausalLM", tensors: gptOssTensors, build: newGptOss, check: checkGptOss, pipes: true},
	gemmaFamily(gemmaConditional),
	gemmaFamily(gemmaCausal),
	qwen35Family(qwen35Text),
	qwen35Family(qwen35Multimodal),
}

// UnsupportedError names an architecture or setting that no family covers.
type UnsupportedError struct{ What, Why string }

func (e *UnsupportedError) Error() string {
	return oneLine(fmt.Sprintf("model: %s is not supported: %s", e.What, e.Why))
}

// line makes one line, of bounded length, of text with words of foreign files.
func oneLine(s string) string {
	const most = 2048
	s = strings.Map(func(r rune) rune {
		if unicode.IsControl(r) {
			return unicode.ReplacementChar
		}
		return r
	}, s)
	if len(s) > most {
		s = strings.ToValidUTF8(s[:most], "") + "…"
	}
	return s
}

// find is the family of a config; cfg names it as the family generates.
func findFamily(cfg checkpoint.Config) (family, error) {
	var known []string
	for _, f := range families {
		if f.architecture == cfg.Architecture {
			if _, ok := torchDtypes[cfg.TorchDtype]; !ok && cfg.TorchDtype != "" {
				return f, &UnsupportedError{"dtype " + cfg.TorchDtype, "float32, float16 and bfloat16 are read"}
			}
			return f, f.check(cfg)
		}
		known = append(known, f.architecture)
	}
	return family{}, &UnsupportedError{"architecture " + cfg.Architecture, "vapp runs " + strings.Join(known, ", ")}
}

// Tensors lists the tensors that a checkpoint with this config has, in the
// formats that its torch_dtype and quantization_config name: what a dummy
// checkpoint is made of.
func Tensors(cfg checkpoint.Config) ([]checkpoint.TensorInfo, error) {
	cfg, head := generativeConfig(cfg)
	f, err := findFamily(cfg)
	if err != nil {
		return nil, err
	}
	if _, err := quantOf(cfg); err != nil {
		return nil, err
	}
	list, err := withHead(cfg, f.tensors(cfg), head)
	if err != nil {
		return nil, err
	}
	return checkSize(list)
}

// maxBytes is more than any model has: a config that asks for it is a mistake.
const maxBytes = 1 << 50

func checkSize(list []checkpoint.TensorInfo) ([]checkpoint.TensorInfo, error) {
	var n int64
	for _, t := range list {
		if n += t.Bytes; t.Bytes > maxBytes || n > maxBytes {
			return nil, &UnsupportedError{"a model of more than 2^50 bytes of weights", "the sizes in its config are no model's"}
		}
	}
	return list, nil
}

// New applies the family of c's architecture. It reads headers only, and
// fails where the checkpoint's tensors disagree with its config, naming the first
// few and their number.
func New(c *checkpoint.Checkpoint, b Build) (Model, error) {
	f, l, err := prepare(c, b)
	if err != nil {
		return nil, err
	}
	cfg, _ := generativeConfig(c.Config())
	m, err := f.build(cfg, l)
	if err == nil {
		err = l.finish()
	}
	if err != nil {
		return nil, err
	}
	return m, nil
}

// prepare finds the family of c and what reads its weights as b says.
func prepare(c *checkpoint.Checkpoint, b Build) (family, *loader, error) {
	cfg, stored := generativeConfig(c.Config())
	f, err := findFamily(cfg)
	if err != nil {
		return f, nil, err
	}
	if stored != Logits && (b.Pooling.Head == Logits || b.Pooling.Head == TokenClassifier) {
		return f, nil, &UnsupportedError{"generating with " + c.Config().Architecture, "it has no head over the vocabulary; let it pool: model.runner pooling"}
	}
	if err := b.checkPooling(cfg); err != nil {
		return f, nil, err
	}
	q, err := quantOf(cfg)
	if err != nil {
		return f, nil, err
	}
	if b, err = b.withDefaults(); err != nil {
		return f, nil, err
	}
	if err := b.formats(q); err != nil {
		return f, nil, err
	}
	if err := q.refuseInt8(c); err != nil {
		return f, nil, err
	}
	if b.Quantize == q.format {
		b.Quantize = kernels.Invalid // as stored
	}
	if b.Pipe.World > 1 && !f.pipes {
		return f, nil, &UnsupportedError{fmt.Sprintf("pipeline parallel size %d of %s", b.Pipe.World, f.architecture), "its layers are not split over ranks"}
	}
	want, err := withHead(cfg, f.tensors(cfg), b.Pooling.Head)
	if err == nil {
		want, err = checkSize(want)
	}
	if err != nil {
		return f, nil, err
	}
	if err := checkTensors(c, f, want); err != nil {
		return f, nil, err
	}
	return f, &loader{src: c, Build: b, quant: q}, nil
}
