package checkpoint

import (
	"encoding/json"
	"slices"
)

// Bounds on config values. A value beyond them is a mistake or an attack.
const (
	maxLayers       = 1024
	maxHidden       = 1 << 20
	maxIntermediate = 1 << 24
	maxHeads        = 1 << 14
	maxHeadDim      = 1 << 14
	maxVocab        = 1 << 24
	maxPositions    = 1 << 28
	maxExperts      = 1 << 14
)

// Config holds the values of config.json that model families need. Sizes are positive and bounded,
// numbers are finite.
type Config struct {
	Architecture string // "LlamaForCausalLM"
	ModelType    string // "llama"

	HiddenSize       int
	IntermediateSize int // 0 only in a family with experts and no dense MLP
	NumLayers        int // num_hidden_layers
	NumHeads         int // num_attention_heads
	NumKVHeads       int // num_key_value_heads, divides NumHeads
	HeadDim          int // of queries and keys
	VocabSize        int // rows of the embedding

	// MaxPositionEmbeddings is the longest sequence: max_position_embeddings, or what its rope
	// extends that to (factor × trained length for yarn and dynamic).
	MaxPositionEmbeddings int
	// PlannedLength is the planned maximum length of a sequence, which ropes of the types dynamic and
	// longrope depend on; 0: MaxPositionEmbeddings.
	PlannedLength       int
	RMSNormEps          float64 // rms_norm_eps, or layer_norm_eps of a family with LayerNorm
	RopeTheta           float64
	RopeScaling         RopeScaling
	PartialRotaryFactor float64 // 1: the whole head is rotated
	// RopeByLayerType replaces RopeTheta and RopeScaling if rope_parameters has an entry for each
	// layer type.
	RopeByLayerType map[string]Rope
	LayerTypes      []string // layer_types, one per layer, or nil
	SlidingWindow   int      // sliding_window, 0 if absent

	// NumExperts is num_experts or num_local_experts, 0 without a mixture. ExpertsPerToken is the
	// number of experts for each token (num_experts_per_tok, top_k_experts), MoEIntermediateSize
	// their width, 0 if the config has none.
	NumExperts, ExpertsPerToken, MoEIntermediateSize int

	// FinalLogitSoftcap is final_logit_softcapping, 0 if absent.
	FinalLogitSoftcap float64

	TieWordEmbeddings bool
	AttentionBias     bool
	MLPBias           bool
	HiddenAct         string // "silu"
	TorchDtype        string // "bfloat16"; "" if absent
	BosTokenID        int    // -1 if absent
	EosTokenIDs       []int

	// QuantizationConfig is the JSON of quantization_config, nil without one.
	QuantizationConfig json.RawMessage
	// Raw is the whole config.json, or GGUF's scalar metadata as a JSON object.
	Raw json.RawMessage
	// Edited lists the fields that Edits replaced.
	Edited []Edit
	// trained is max_position_embeddings before a rope extends it.
	trained int
	// Dialect is the source of Raw: "huggingface" or "gguf".
	Dialect string
}

// ParseConfig parses a config.json. name is the file's name for errors. If there is a text_config,
// its keys take precedence over those of the outer object.
func ParseConfig(name string, data []byte) (Config, error) {
	f, err := newFields(name, "", data)
	if err != nil {
		return Config{}, err
	}
	c := Config{Dialect: "huggingface", Raw: slices.Clone(json.RawMessage(data))}
	c.Architecture = f.architecture()
	c.ModelType = f.text("model_type", "")
	if c.ModelType == "" {
		f.fail("model_type", "is missing")
	}
	if v, ok := f.raw("quantization_config"); ok {
		c.QuantizationConfig = slices.Clone(v)
	}
	if f.err != nil {
		return Config{}, f.err
	}
	if v, ok := f.raw("text_config"); ok {
		inner, err := newFields(name, "text_config.", v)
		if err != nil {
			return Config{}, err
		}
		inner.outer = f.m
		f = inner
	}
	f.useDefaults()
	c.readSizes(f)
	c.readRope(f)
	c.extendLength()
	c.readRest(f)
	if f.outer != nil && f.err == nil {
		top := &fields{file: name, m: f.outer}
		c.EosTokenIDs = union(top.ids("eos_token_id", c.VocabSize), c.EosTokenIDs)
		f.err = top.err
	}
	if f.err != nil {
		return Config{}, f.err
	}
	return c, nil
}

func (f *fields) architecture() string {
	var list []string
	v, ok := f.raw("architectures")
	if !ok {
		f.fail("architectures", "is missing")
		return ""
	}
	if json.Unmarshal(v, &list) != nil || len(list) != 1 || list[0] == "" || len(list[0]) > 256 {
		f.fail("architectures", "is %s, not a list of one name", clip(string(v)))
		return ""
	}
	return list[0]
}

func (c *Config) readSizes(f *fields) {
	c.HiddenSize = f.count("hidden_size", 1, maxHidden)
	if f.has("intermediate_size") || !f.has("moe_intermediate_size") {
		c.IntermediateSize = f.count("intermediate_size", 1, maxIntermediate)
	}
	c.NumLayers = f.count("num_hidden_layers", 1, maxLayers)
	c.NumHeads = f.count("num_attention_heads", 1, maxHeads)
	c.NumKVHeads = f.countOr("num_key_value_heads", 1, maxHeads, int64(c.NumHeads))
	c.VocabSize = f.count("vocab_size", 1, maxVocab)
	c.MaxPositionEmbeddings = f.count("max_position_embeddings", 1, maxPositions)
	if t := f.text("model_type", ""); t == "cohere" || t == "cohere2" { // Command-R is longer than its first config says
		c.MaxPositionEmbeddings = max(c.MaxPositionEmbeddings, f.countOr("model_max_length", 1, maxPositions, 1))
	}
	eps := "rms_norm_eps"
	if !f.has(eps) && f.has("layer_norm_eps") {
		eps = "layer_norm_eps"
	}
	c.RMSNormEps = f.real(eps, 1e-30, 1)
	c.SlidingWindow = f.countOr("sliding_window", 0, maxPositions, 0)
	if f.err != nil {
		return
	}
	if c.NumHeads%c.NumKVHeads != 0 {
		f.fail("num_key_value_heads", "is %d, which does not divide num_attention_heads %d", c.NumKVHeads, c.NumHeads)
	}
	if f.has("qk_nope_head_dim") && f.has("qk_rope_head_dim") { // latent attention
		c.HeadDim = f.count("qk_nope_head_dim", 1, maxHeadDim) + f.count("qk_rope_head_dim", 2, maxHeadDim)
		return
	}
	c.HeadDim = f.countOr("head_dim", 2, maxHeadDim, 0)
	if c.HeadDim != 0 {
		if c.HeadDim%2 != 0 {
			f.fail("head_dim", "is %d, rotary embedding needs an even number", c.HeadDim)
		}
		return
	}
	c.HeadDim = c.HiddenSize / c.NumHeads
	if c.HiddenSize%c.NumHeads != 0 || c.HeadDim%2 != 0 {
		f.fail("hidden_size", "is %d, which %d num_attention_heads do not divide into heads of an even size; set head_dim", c.HiddenSize, c.NumHeads)
	}
}

func (c *Config) readRest(f *fields) {
	c.TieWordEmbeddings = f.flag("tie_word_embeddings", false)
	c.AttentionBias = f.flag("attention_bias", false)
	c.MLPBias = f.flag("mlp_bias", false)
	c.NumExperts = f.countOr("num_experts", 0, maxExperts, int64(f.countOr("num_local_experts", 0, maxExperts, 0)))
	c.ExpertsPerToken = f.countOr("num_experts_per_tok", 0, maxExperts, int64(f.countOr("top_k_experts", 0, maxExperts, 0)))
	c.MoEIntermediateSize = f.countOr("moe_intermediate_size", 0, maxIntermediate, 0)
	c.FinalLogitSoftcap = f.realOr("final_logit_softcapping", 0, 1e6, 0)
	c.HiddenAct = f.text("hidden_act", f.text("hidden_activation", "silu"))
	c.TorchDtype = f.text("dtype", f.text("torch_dtype", ""))
	if f.err != nil {
		return // vocab_size may be unknown
	}
	c.BosTokenID = f.oneID("bos_token_id", c.VocabSize)
	c.EosTokenIDs = f.ids("eos_token_id", c.VocabSize)
	if v, ok := f.raw("layer_types"); ok {
		if json.Unmarshal(v, &c.LayerTypes) != nil || len(c.LayerTypes) != c.NumLayers {
			f.fail("layer_types", "is not a list of %d strings, one a layer", c.NumLayers)
		}
	}
}
