// Package models holds the model families, one set of files each. A family lists its weights and
// its KV classes, and records its forward pass once against the ops of engine/backend. It must not
// know the scheduler, the server or any one backend. Start reading at Model and New in models.go,
// then at recipe.go, which describes most families, and llama.go, the simplest of them.
package models

import (
	"fmt"
	"slices"
	"strings"
	"unicode"

	"vapp.dev/engine/backend"
	"vapp.dev/engine/checkpoint"
	"vapp.dev/kernels"
)

// Build is how a family is applied to a checkpoint. The zero value builds the whole model as
// stored, text only.
type Build struct {
	Shard backend.Shard // of the weights: tensor parallel; zero: Whole
	// Pipe is the rank's stage, a range of layers: pipeline parallel; zero: Whole.
	Pipe backend.Shard
	// Dtype is the format that unquantized matrices are converted to when packed: F32, F16 or BF16;
	// Invalid: as stored.
	Dtype kernels.Format
	// Quantize is the format that linear layers and experts are quantized to when packed: F8E4M3;
	// Invalid: as stored.
	Quantize kernels.Format
	// Draft is the number of tokens that the MTP head or a draft model proposes in a step; 0 leaves
	// out its weights.
	Draft int
	// Verify is the number of proposed tokens that a step verifies for each sequence, from any
	// proposer. Models with recurrent state keep one copy of it for each. At least Draft.
	Verify int
	// Vision keeps the vision tower.
	Vision bool
	// Length is the planned maximum length of a sequence in tokens, by which ropes of the types
	// dynamic and longrope are computed; 0: the model's own maximum.
	Length int
	// LoRA plans slots of low-rank adapters for the linear layers of the blocks.
	LoRA LoRA
	// Rebuild stores only the part of K that cannot be computed from V.
	Rebuild bool
	// Pooling selects the output of a model that does not generate tokens.
	Pooling Pooling
}

// Model is a family applied to one checkpoint, for one rank.
type Model interface {
	// Weights lists the weights that a device must hold, in arena order.
	Weights() []backend.WeightSpec
	// Classes returns the KV geometry for a block size and format, before slabs are assigned.
	Classes(blockSize int, f kernels.Format) []backend.KVClass
	// Record writes the forward pass of a step into p. The caller has set p's Name, Bucket and
	// Classes.
	Record(p *backend.Program) (*backend.Program, error)
	// Vocab is the width of the logits.
	Vocab() int
}

// Encoder is implemented by a Model with a vision tower.
type Encoder interface {
	// Patches returns the maximum number of patches in one item (image or video frame) of a
	// request.
	Patches() int
	// RecordEncoder writes the tower's pass over p.Bucket.Tokens patches into p.
	RecordEncoder(p *backend.Program) (*backend.Program, error)
	// Images returns how images become tokens.
	Images() ImageShape
}

// ImageShape is how an image becomes tokens.
type ImageShape struct {
	Side    int  // of a patch, in pixels
	Square  int  // patches of a token
	Budgets bool // an image has a budget of tokens (Gemma 4); false: its pixels are bounded (Qwen3.5)
	Frames  int  // frames of a video that are encoded together
	Frame   int  // maximum patches of these at the published video processor's size
}

// family is one row of the table of architectures.
type family struct {
	architecture string
	tensors      func(checkpoint.Config) []checkpoint.TensorInfo
	build        func(checkpoint.Config, *loader) (Model, error)
	check        func(checkpoint.Config) error
	// skip reports tensors that only some builds read, such as vision towers and MTP heads. They
	// may be absent. nil: none.
	skip func(tensor string) bool
	// skipOf returns skip for a config; nil: skip holds for all.
	skipOf func(checkpoint.Config) func(tensor string) bool
	// pipes is true if build honours Build.Pipe.
	pipes bool
	// tempered is true if queries may be scaled by their position (RopeScaling.QueryBeta).
	tempered bool
	// drafts is true if build returns a *decoder, which can serve as the draft model in NewWithDraft.
	drafts bool
}

// without returns the family with files that also have tensors under these prefixes, which are not
// read.
func (f family) without(prefixes ...string) family {
	f.skip = func(tensor string) bool {
		return slices.ContainsFunc(prefixes, func(p string) bool { return strings.HasPrefix(tensor, p) })
	}
	return f
}

// scalingQueries returns the family with a rope that may scale queries by their position.
func (f family) scalingQueries() family {
	f.tempered = true
	return f
}

// skipping returns the family with files that also have the tensors that of reports for a config.
func (f family) skipping(of func(checkpoint.Config) func(tensor string) bool) family {
	f.skipOf = of
	return f
}

// families lists every architecture that the engine runs.
var families = []family{
	recipeFamily("LlamaForCausalLM", llama),
	recipeFamily("Llama4ForCausalLM", llama4),
	recipeFamily("Llama4ForConditionalGeneration", llama4Conditional).without("vision_model.", "multi_modal_projector."),
	recipeFamily("Qwen2ForCausalLM", qwen2),
	recipeFamily("Qwen3ForCausalLM", qwen3),
	recipeFamily("MistralForCausalLM", mistral),
	recipeFamily("MinistralForCausalLM", mistral),
	recipeFamily("Ministral3ForCausalLM", ministral3).scalingQueries(),
	recipeFamily("Mistral3ForConditionalGeneration", mistral3).scalingQueries().without("vision_tower.", "multi_modal_projector."),
	recipeFamily("GemmaForCausalLM", gemma1),
	recipeFamily("Gemma2ForCausalLM", gemma2),
	recipeFamily("Gemma3ForCausalLM", gemma3),
	recipeFamily("Gemma3ForConditionalGeneration", gemma3Conditional).without("vision_tower.", "multi_modal_projector."),
	recipeFamily("Phi3ForCausalLM", phi3),
	recipeFamily("GraniteForCausalLM", granite),
	recipeFamily("SmolLM3ForCausalLM", smollm3),
	recipeFamily("GlmForCausalLM", glm),
	recipeFamily("Glm4ForCausalLM", glm4),
	recipeFamily("CohereForCausalLM", cohere),
	recipeFamily("Cohere2ForCausalLM", cohere2),
	recipeFamily("Ernie4_5ForCausalLM", ernie),
	recipeFamily("InternLM3ForCausalLM", internlm3),
	recipeFamily("Olmo2ForCausalLM", olmo2),
	recipeFamily("Olmo3ForCausalLM", olmo3),
	recipeFamily("OlmoeForCausalLM", olmoe),
	recipeFamily("HunYuanDenseV1ForCausalLM", hunyuan),
	recipeFamily("Qwen3MoeForCausalLM", qwen3MoE),
	recipeFamily("MixtralForCausalLM", mixtral),
	recipeFamily("Qwen2MoeForCausalLM", qwen2MoE),
	recipeFamily("Glm4MoeForCausalLM", glm4MoE).skipping(laterLayers),
	recipeFamily("DeepseekV2ForCausalLM", deepseekV2),
	recipeFamily("DeepseekV3ForCausalLM", deepseekV3).skipping(laterLayers),
	recipeFamily("GraniteMoeForCausalLM", graniteMoE),
	recipeFamily("GraniteMoeHybridForCausalLM", graniteHybrid),
	recipeFamily("Ernie4_5_MoeForCausalLM", ernieMoE).without("model.mtp_"),
	{architecture: "GptOssForCausalLM", tensors: gptOssTensors, build: newGptOss, check: checkGptOss, pipes: true},
	gemmaFamily(gemmaConditional),
	gemmaFamily(gemmaCausal),
	gemmaFamily(gemmaUnified),
	qwen35Family(qwen35Text),
	qwen35Family(qwen35Multimodal),
	qwen35Family(qwen35MoEText),
	qwen35Family(qwen35MoEMultimodal),
	qwen35Family(qwen3Next),
}

// UnsupportedError reports an architecture or setting that no family supports.
type UnsupportedError struct{ What, Why string }

func (e *UnsupportedError) Error() string {
	return oneLine(fmt.Sprintf("model: %s is not supported: %s", e.What, e.Why))
}

// oneLine replaces control characters in s and limits its length, because s may quote untrusted
// files.
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

// findFamily returns the family of a config, whose architecture must be the generative one. tensors are
// those of the checkpoint, nil if there is only the config.
func findFamily(cfg checkpoint.Config, tensors []checkpoint.TensorInfo) (family, error) {
	var known []string
	for _, f := range families {
		if f.architecture == cfg.Architecture {
			if f.skipOf != nil {
				f.skip = f.skipOf(cfg)
			}
			if _, ok := torchDtypes[cfg.TorchDtype]; !ok && cfg.TorchDtype != "" {
				return f, &UnsupportedError{"dtype " + cfg.TorchDtype, "float32, float16 and bfloat16 are read"}
			}
			if beta := cfg.RopeScaling.QueryBeta; beta != 0 && !f.tempered {
				return f, &UnsupportedError{fmt.Sprintf("llama_4_scaling_beta %v of %s", beta, cfg.Architecture), "Ministral3ForCausalLM and Mistral3ForConditionalGeneration scale queries by their position"}
			}
			return f, f.check(cfg)
		}
		known = append(known, f.architecture)
	}
	return family{}, &UnsupportedError{"architecture " + cfg.Architecture, "vapp runs " + strings.Join(known, ", ") + resemblance(cfg, tensors)}
}

// Tensors lists the tensors of a checkpoint with this config, in the formats that its torch_dtype
// and quantization_config name. Dummy checkpoints are made from this list.
func Tensors(cfg checkpoint.Config) ([]checkpoint.TensorInfo, error) {
	cfg, head := generativeConfig(cfg)
	f, err := findFamily(cfg, nil)
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

// maxBytes is an upper bound on a model's weights; a larger size means a broken config.
const maxBytes = 1 << 50

func checkSize(list []checkpoint.TensorInfo) ([]checkpoint.TensorInfo, error) {
	var n int64
	for _, t := range list {
		if n += t.Bytes; t.Bytes > maxBytes || n > maxBytes {
			return nil, &UnsupportedError{"a model of more than 2^50 bytes of weights", "its config must be wrong"}
		}
	}
	return list, nil
}

// New applies the family of c's architecture. It reads headers only. If the checkpoint's tensors
// disagree with its config, the error names the first few of them and their number.
func New(c *checkpoint.Checkpoint, b Build) (Model, error) {
	f, l, err := prepare(c, b)
	if err != nil {
		return nil, err
	}
	m, err := f.build(b.config(c), l)
	if err == nil {
		err = l.finish()
	}
	if err != nil {
		return nil, err
	}
	return m, nil
}

// config returns the config that families are built from: that of a generating model, with the
// planned length.
func (b Build) config(c *checkpoint.Checkpoint) checkpoint.Config {
	cfg, _ := generativeConfig(c.Config())
	cfg.PlannedLength = b.Length
	return cfg
}

// prepare returns the family of c and a loader for its weights under b.
func prepare(c *checkpoint.Checkpoint, b Build) (family, *loader, error) {
	cfg, stored := generativeConfig(c.Config())
	f, err := findFamily(cfg, c.Tensors())
	if err != nil {
		return f, nil, err
	}
	if stored != Logits && (b.Pooling.Head == Logits || b.Pooling.Head == TokenClassifier) {
		return f, nil, &UnsupportedError{"generating with " + c.Config().Architecture, "it has no head over the vocabulary; to pool with it, set model.runner to pooling"}
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
	if err := b.LoRA.check(); err != nil {
		return f, nil, err
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
	return f, &loader{src: c, Build: b, quant: q, activations: b.Activations(cfg), layers: cfg.NumLayers}, nil
}
