package checkpoint

import (
	"fmt"

	"vapp.dev/kernels"
	"vapp.dev/kernels/ref"
)

// ggufArch describes a GGUF architecture in Hugging Face terms.
type ggufArch struct {
	architecture string
	permutesQK   bool // the converter interleaves the rows of Q and K
	modelType    string
	names        map[string]string // names of layer parts that differ from ggufNames
}

var ggufArchs = map[string]ggufArch{
	"llama":   {"LlamaForCausalLM", true, "llama", nil},
	"qwen2":   {"Qwen2ForCausalLM", false, "qwen2", nil},
	"qwen3":   {"Qwen3ForCausalLM", false, "qwen3", nil},
	"gpt-oss": {"GptOssForCausalLM", false, "gpt_oss", gptOssNames},
}

// openGGUF reads the header of a GGUF file, and of the other files of a split model.
func (c *Checkpoint) openGGUF() error {
	open := func(path string) ([]byte, error) {
		f, err := openFile(path)
		if err != nil {
			return nil, err
		}
		c.files[path] = f
		return f.data, nil
	}
	data, err := open(c.path)
	if err != nil {
		return err
	}
	return catchFault(c.path, func() error {
		g, err := parseGGUF(c.path, data)
		if err != nil {
			return err
		}
		if err := g.joinSplits(open); err != nil {
			return err
		}
		return c.fromGGUF(g)
	})
}

// fromGGUF fills in the checkpoint from a header, under Hugging Face names.
func (c *Checkpoint) fromGGUF(g *gguf) error {
	cfg, arch, err := g.config()
	if err != nil {
		return err
	}
	c.cfg = cfg
	for _, t := range g.tensors {
		if t.Name == ropeFreqs {
			continue
		}
		name, part, ok := arch.huggingFaceName(t.Name, cfg.NumLayers)
		if !ok {
			return fault(g.path, t.Name, "is no tensor of a %s model of %d layers", cfg.ModelType, cfg.NumLayers)
		}
		if arch.permutesQK && (part == "attn_q" || part == "attn_k") {
			if err := checkInterleaved(g.path, t, cfg.HeadDim); err != nil {
				return err
			}
			t.RopeHead = int64(cfg.HeadDim)
		}
		t.Name = name
		if err := c.add(t); err != nil {
			return err
		}
	}
	c.text, err = ggufText(g, cfg)
	c.cfg.EosTokenIDs = c.text.eos
	return err
}

// checkInterleaved checks that a Q or K tensor consists of whole heads.
func checkInterleaved(path string, t TensorInfo, headDim int) error {
	n := t.Shape[0]
	if n%int64(headDim) != 0 {
		return fault(path, t.Name, "has %d rows, no whole number of heads of %d", n, headDim)
	}
	if len(t.Shape) == 1 && t.Format.Quantized() {
		return fault(path, t.Name, "is a quantized bias")
	}
	return nil
}

// config converts the metadata to a Config.
func (g *gguf) config() (Config, ggufArch, error) {
	f := &ggufFields{g: g}
	name := f.text("general.architecture", "")
	arch, ok := ggufArchs[name]
	if f.err == nil && !ok {
		f.fail("general.architecture", "%s is not read (llama, qwen2, qwen3 and gpt-oss are)", clip(name))
	}
	if f.err != nil {
		return Config{}, arch, f.err
	}
	c := Config{
		Architecture: arch.architecture, ModelType: arch.modelType, Dialect: "gguf", Raw: g.scalarsJSON(),
		HiddenAct: "silu", PartialRotaryFactor: 1,
		HiddenSize:            f.count(name+".embedding_length", 1, maxHidden, -1),
		IntermediateSize:      f.count(name+".feed_forward_length", 1, maxIntermediate, -1),
		NumLayers:             f.count(name+".block_count", 1, maxLayers, -1),
		NumHeads:              f.count(name+".attention.head_count", 1, maxHeads, -1),
		MaxPositionEmbeddings: f.count(name+".context_length", 1, maxPositions, -1),
		RMSNormEps:            f.real(name+".attention.layer_norm_rms_epsilon", 1e-30, 1, -1),
		RopeTheta:             f.real(name+".rope.freq_base", 1, 1e15, DefaultRopeTheta),
		TieWordEmbeddings:     true,
	}
	c.NumKVHeads = f.count(name+".attention.head_count_kv", 1, maxHeads, int64(max(c.NumHeads, 1)))
	c.ggufExperts(f, name)
	c.ggufHeads(f, name)
	c.ggufTensorFacts(f)
	c.ggufRope(f, name)
	c.extendLength()
	if f.err == nil {
		c.BosTokenID = f.id("tokenizer.ggml.bos_token_id", c.VocabSize)
	}
	return c, arch, f.err
}

// ggufExperts reads the mixture of gpt-oss; other architectures have none.
func (c *Config) ggufExperts(f *ggufFields, name string) {
	if name != "gpt-oss" {
		if f.count(name+".expert_count", 0, 1<<16, 0) > 0 {
			f.fail(name+".expert_count", "is set; experts are read in files of the architecture gpt-oss")
		}
		return
	}
	c.NumExperts = f.count(name+".expert_count", 1, maxExperts, -1)
	c.ExpertsPerToken = f.count(name+".expert_used_count", 1, int64(max(1, c.NumExperts)), -1)
	c.IntermediateSize = f.count(name+".expert_feed_forward_length", 1, maxIntermediate, int64(max(1, c.IntermediateSize)))
	c.SlidingWindow = f.count(name+".attention.sliding_window", 1, maxPositions, -1)
}

func (c *Config) ggufHeads(f *ggufFields, name string) {
	if f.err != nil {
		return
	}
	if c.NumHeads%c.NumKVHeads != 0 {
		f.fail(name+".attention.head_count_kv", "is %d, which does not divide head_count %d", c.NumKVHeads, c.NumHeads)
	}
	c.HeadDim = f.count(name+".attention.key_length", 2, maxHeadDim, int64(max(2, c.HiddenSize/c.NumHeads)))
	if _, ok := f.g.values[name+".attention.key_length"]; !ok && c.HiddenSize%c.NumHeads != 0 {
		f.fail(name+".embedding_length", "is %d, which head_count %d does not divide", c.HiddenSize, c.NumHeads)
	}
	if v := f.count(name+".attention.value_length", 2, maxHeadDim, int64(max(2, c.HeadDim))); f.err == nil && v != c.HeadDim {
		f.fail(name+".attention.value_length", "is %d, key_length is %d; heads of one size are read", v, c.HeadDim)
	}
	if r := f.count(name+".rope.dimension_count", 2, maxHeadDim, int64(max(2, c.HeadDim))); f.err == nil && r != c.HeadDim {
		f.fail(name+".rope.dimension_count", "is %d, heads have %d; partly rotated heads are not read", r, c.HeadDim)
	}
	if f.err == nil && c.HeadDim%2 != 0 {
		f.fail(name+".attention.key_length", "is %d, rotary embedding needs an even number", c.HeadDim)
	}
}

// ggufTensorFacts derives from the tensors what GGUF has no key for.
func (c *Config) ggufTensorFacts(f *ggufFields) {
	for _, t := range f.g.tensors {
		switch t.Name {
		case "token_embd.weight":
			if t.Rows() > maxVocab {
				f.fail(t.Name, "has %d rows, more than the limit of %d", t.Rows(), maxVocab)
			}
			c.VocabSize = int(min(t.Rows(), maxVocab))
			c.TorchDtype = torchName(t.Format)
		case "output.weight":
			c.TieWordEmbeddings = false
		case "blk.0.attn_q.bias":
			c.AttentionBias = c.ModelType == "llama" || c.ModelType == "gpt_oss" // qwen2 has biases without this flag
		case "blk.0.ffn_up.bias":
			c.MLPBias = c.ModelType == "llama"
		}
	}
	if c.VocabSize == 0 {
		f.fail("token_embd.weight", "is missing")
	}
}

func torchName(f kernels.Format) string {
	return map[kernels.Format]string{kernels.F32: "float32", kernels.F16: "float16", kernels.BF16: "bfloat16"}[f]
}

func (c *Config) ggufRope(f *ggufFields, name string) {
	if f.err != nil {
		return
	}
	key := name + ".rope.scaling."
	switch kind := f.text(key+"type", "none"); kind {
	case "none":
	case "linear":
		c.RopeScaling = RopeScaling{Type: "linear", Factor: f.real(key+"factor", minFactor, maxFactor, -1)}
	case "yarn":
		// llama.cpp rounds the ends of the ramp. The published gpt-oss does not, so this does not.
		c.RopeScaling = RopeScaling{
			Type: "yarn", Factor: f.real(key+"factor", minFactor, maxFactor, -1),
			OriginalMaxPositionEmbeddings: f.count(key+"original_context_length", 1, maxPositions, -1),
			BetaFast:                      f.real(key+"yarn_beta_fast", 1e-3, 1e6, 32), BetaSlow: f.real(key+"yarn_beta_slow", 1e-3, 1e6, 1),
			Truncate: name != "gpt-oss",
		}
	default:
		f.fail(key+"type", "%s is not read (none, linear and yarn are; llama3 is the tensor %s)", clip(kind), ropeFreqs)
	}
	for _, t := range f.g.tensors {
		if t.Name != ropeFreqs || f.err != nil {
			continue
		}
		if t.Format != kernels.F32 || t.Elements() != int64(c.HeadDim/2) {
			f.fail(t.Name, "is %v %v, not %d f32 factors", t.Format, t.Shape, c.HeadDim/2)
			return
		}
		factors := make([]float32, c.HeadDim/2)
		ref.Dequantize(t.Format, f.g.data[t.File][t.Offset:t.Offset+t.Bytes], factors)
		for i, x := range factors {
			if !(x >= minFactor && x <= maxFactor) {
				f.fail(t.Name, "factor %d is %v, allowed are %v to %v", i, x, minFactor, maxFactor)
			}
		}
		if c.RopeScaling.Type != "" {
			f.fail(t.Name, "comes with %s; one of the two is read", fmt.Sprintf("%stype %s", key, c.RopeScaling.Type))
		}
		c.RopeScaling = RopeScaling{Type: "llama3", Factors: factors}
	}
}
