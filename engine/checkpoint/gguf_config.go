package checkpoint

import (
	"cmp"
	"encoding/json"
	"slices"
	"strings"

	"vapp.dev/kernels"
)

// openGGUF reads the header of a GGUF file, and of the other files of a split model.
func (c *Checkpoint) openGGUF(e Edits) error {
	if len(e.Overrides) > 0 {
		return fault("model.overrides", "", "replaces fields of config.json, and %s is a GGUF file without one; model.rope replaces its rope", c.path)
	}
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
		if err := c.fromGGUF(g); err != nil {
			return err
		}
		return c.cfg.replaceRope(e.Rope)
	})
}

// fromGGUF fills in the checkpoint from a header, under Hugging Face names.
func (c *Checkpoint) fromGGUF(g *gguf) error {
	cfg, arch, err := g.config()
	if err != nil {
		return err
	}
	c.cfg = cfg
	blocks := (&ggufFields{g: g}).count(string(g.values["general.architecture"].raw)+".block_count", 1, maxLayers, -1)
	for _, t := range g.tensors {
		if readAlready(t.Name) {
			continue
		}
		if n, _, ok := layerOf(t.Name); ok && n >= cfg.NumLayers && n < blocks {
			continue // of layers that predict further tokens
		}
		name, part, ok := arch.huggingFaceName(t.Name, cfg.NumLayers)
		if !ok && loneExpert(t.Name) {
			return fault(t.File, t.Name, "is one expert alone, as llama.cpp wrote them until April 2024; convert the model again, all experts are then one tensor")
		}
		if !ok {
			return fault(t.File, t.Name, "is no tensor of a %s model of %d layers that vapp reads; convert the model again, or use its safetensors", cfg.ModelType, cfg.NumLayers)
		}
		for _, t := range arch.parts(t, name, part, cfg) {
			if err := c.addGGUF(arch, t, cfg); err != nil {
				return err
			}
		}
	}
	c.text, err = ggufText(g, cfg)
	c.cfg.EosTokenIDs = c.text.eos
	return err
}

// addGGUF adds a tensor that has its Hugging Face name.
func (c *Checkpoint) addGGUF(arch ggufArch, t TensorInfo, cfg Config) error {
	if arch.permutesQK && (strings.Contains(t.Name, ".q_proj.") || strings.Contains(t.Name, ".k_proj.")) {
		if err := checkInterleaved(t.File, t, cfg.HeadDim); err != nil {
			return err
		}
		t.RopeHead = int64(cfg.HeadDim)
	}
	if len(t.Shape) == 1 && (strings.HasSuffix(t.Name, ".shared_expert_gate.weight") || strings.HasSuffix(t.Name, ".moe_statics.e_score_correction_bias")) {
		t.Shape = []int64{1, t.Shape[0]}
	}
	if strings.Contains(t.Name, ".linear_attn.") {
		return c.addDelta(t, arch.modelType != "qwen3_next")
	}
	return c.add(t)
}

// addDelta adds a tensor of a delta net. Where several value heads share a key head, the converter
// stores value heads in tiles if tiled; the columns of out_proj, whose blocks may span heads, stay so.
func (c *Checkpoint) addDelta(t TensorInfo, tiled bool) error {
	s, err := c.cfg.Section("")
	if err != nil {
		return err
	}
	keys, values := s.CountOr("linear_num_key_heads", 1, maxHeads, 1), s.CountOr("linear_num_value_heads", 1, maxHeads, 1)
	keyDim, valueDim := s.CountOr("linear_key_head_dim", 1, maxHeadDim, 1), s.CountOr("linear_value_head_dim", 1, maxHidden, 1)
	if err := s.Err(); err != nil {
		return err
	}
	order := headTiles{size: 1, groups: int64(keys), each: int64(values / keys)}
	switch _, part, _ := strings.Cut(t.Name, ".linear_attn."); part {
	case "in_proj_qkv.weight", "conv1d.weight":
		order.first, order.size = 2*int64(keys)*int64(keyDim), int64(valueDim)
	case "in_proj_z.weight":
		order.size = int64(valueDim)
	case "A_log":
		if t.Format != kernels.F32 {
			return fault(t.File, t.Name, "is %v, f32 is read", t.Format)
		}
		t.negated = true
	case "in_proj_a.weight", "in_proj_b.weight", "dt_bias":
	default:
		return c.add(t)
	}
	if rows := order.first + int64(values)*order.size; t.Shape[0] != rows {
		return fault(t.File, t.Name, "has %d rows, by the keys of ssm it has %d", t.Shape[0], rows)
	}
	if strings.HasSuffix(t.Name, ".conv1d.weight") && len(t.Shape) == 2 {
		t.Shape = []int64{t.Shape[0], 1, t.Shape[1]}
	}
	if tiled && keys != values {
		t.tiles = order
	}
	return c.add(t)
}

// parts returns the tensor under its Hugging Face name. Rows of Q, K and V in one matrix become three
// tensors where the family stores them apart.
func (a ggufArch) parts(t TensorInfo, name, part string, cfg Config) []TensorInfo {
	if _, fused := a.names["attn_qkv"]; part != "attn_qkv" || fused {
		t.Name = name
		return []TensorInfo{t}
	}
	q, kv := int64(cfg.NumHeads*cfg.HeadDim), int64(cfg.NumKVHeads*cfg.HeadDim)
	each := t.Bytes / t.Shape[0]
	var out []TensorInfo
	for i, rows := range []int64{q, kv, kv} {
		x := t
		x.Name = strings.Replace(name, "qkv_proj", []string{"q_proj", "k_proj", "v_proj"}[i], 1)
		x.Shape = slices.Clone(t.Shape)
		x.Shape[0], x.Bytes = rows, rows*each
		out = append(out, x)
		t.Offset += rows * each
	}
	return out
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

// config converts the metadata to a Config, by way of the config.json that the model would have.
func (g *gguf) config() (Config, ggufArch, error) {
	f := &ggufFields{g: g}
	name := f.text("general.architecture", "")
	arch, ok := ggufArchs[name]
	if f.err == nil && !ok {
		f.fail("general.architecture", "%s is not read (%s are); take the model's safetensors if docs/models.md lists it", clip(name), readArchs())
	}
	if f.err != nil {
		return Config{}, arch, f.err
	}
	h := hfConfig{
		"architectures": []string{arch.architecture}, "model_type": arch.modelType, "hidden_act": "silu",
		"hidden_size":             f.count(name+".embedding_length", 1, maxHidden, -1),
		"num_hidden_layers":       f.count(name+".block_count", 1, maxLayers, -1),
		"num_attention_heads":     f.count(name+".attention.head_count", 1, maxHeads, -1),
		"max_position_embeddings": f.count(name+".context_length", 1, maxPositions, -1),
	}
	f.widths(name, h)
	f.epsilon(name, h)
	f.heads(name, h)
	f.tensorFacts(arch, h)
	scaling := f.rope(name, h)
	if arch.config != nil && f.err == nil {
		arch.config(f, name, h)
	}
	f.checkQKV(arch, name, h)
	if f.err != nil {
		return Config{}, arch, f.err
	}
	if id := f.id("tokenizer.ggml.bos_token_id", h["vocab_size"].(int)); id >= 0 {
		h["bos_token_id"] = id
	}
	for key, v := range g.scalars() {
		h[key] = v // these keys have dots, the others have none
	}
	raw, err := json.Marshal(h)
	if err != nil || f.err != nil {
		return Config{}, arch, failed(g.path, "", cmp.Or(f.err, err))
	}
	c, err := ParseConfig(g.path, raw)
	if scaling.Factors != nil {
		c.RopeScaling = scaling
	}
	c.Dialect = "gguf"
	return c, arch, err
}

// widths reads the width of the MLP, which Gemma 4 may give by layer.
func (f *ggufFields) widths(arch string, h hfConfig) {
	key := arch + ".feed_forward_length"
	if v, ok := f.g.values[key]; ok && v.kind == kindArray && arch == "gemma4" {
		layers, _ := h["num_hidden_layers"].(int)
		list := f.counts(key, 1, maxIntermediate, layers)
		if f.err == nil {
			h["intermediate_size"], h["use_double_wide_mlp"] = list[0], slices.Max(list) != slices.Min(list)
		}
		return
	}
	if _, ok := f.g.values[key]; ok || arch != "qwen35moe" && arch != "qwen3next" {
		h["intermediate_size"] = f.count(key, 1, maxIntermediate, -1)
	}
}

// epsilon reads the epsilon of RMSNorm, or of LayerNorm in a family that has it.
func (f *ggufFields) epsilon(arch string, h hfConfig) {
	key := arch + ".attention.layer_norm_epsilon"
	if _, ok := f.g.values[key]; ok && (arch == "command-r" || arch == "cohere2") {
		h["layer_norm_eps"] = f.real(key, 1e-30, 1, -1)
		return
	}
	h["rms_norm_eps"] = f.real(arch+".attention.layer_norm_rms_epsilon", 1e-30, 1, -1)
}

// heads reads numbers and sizes of heads.
func (f *ggufFields) heads(arch string, h hfConfig) {
	if f.err != nil {
		return
	}
	hidden, heads := h["hidden_size"].(int), h["num_attention_heads"].(int)
	key := arch + ".attention.head_count_kv"
	if v := f.g.values[key]; v.kind != kindArray || arch != "gemma4" {
		layers, _ := h["num_hidden_layers"].(int)
		kv := f.sameCount(key, 1, maxHeads, int64(heads), layers)
		if f.err == nil && heads%kv != 0 {
			f.fail(key, "is %d, which does not divide head_count %d", kv, heads)
		}
		h["num_key_value_heads"] = kv
	}
	dim := f.count(arch+".attention.key_length", 2, maxHeadDim, int64(max(2, hidden/heads)))
	if _, ok := f.g.values[arch+".attention.key_length"]; !ok && hidden%heads != 0 {
		f.fail(arch+".embedding_length", "is %d, which head_count %d does not divide", hidden, heads)
	}
	if v := f.count(arch+".attention.value_length", 2, maxHeadDim, int64(max(2, dim))); f.err == nil && v != dim && arch != "deepseek2" {
		f.fail(arch+".attention.value_length", "is %d, key_length is %d; heads of one size are read", v, dim)
	}
	if r := f.count(arch+".rope.dimension_count", 2, maxHeadDim, int64(max(2, dim))); f.err == nil && r != dim && !rotatesPart(arch) {
		f.fail(arch+".rope.dimension_count", "is %d, heads have %d; partly rotated heads are not read", r, dim)
	}
	if f.err == nil && dim%2 != 0 {
		f.fail(arch+".attention.key_length", "is %d, rotary embedding needs an even number", dim)
	}
	h["head_dim"] = dim
}

// rotatesPart reports whether heads of a family may be rotated in part.
func rotatesPart(arch string) bool {
	return arch == "phi3" || arch == "chatglm" || arch == "glm4" || arch == "glm4moe" || arch == "gemma4" || arch == "qwen35" || arch == "qwen35moe" || arch == "qwen3next" || arch == "deepseek2"
}

// tensorFacts derives from the tensors what GGUF has no key for.
func (f *ggufFields) tensorFacts(arch ggufArch, h hfConfig) {
	h["tie_word_embeddings"] = true
	for _, t := range f.g.tensors {
		switch t.Name {
		case "token_embd.weight":
			if t.Rows() > maxVocab {
				f.fail(t.Name, "has %d rows, more than the limit of %d", t.Rows(), maxVocab)
			}
			h["vocab_size"] = int(min(t.Rows(), maxVocab))
			if name := torchName(t.Format); name != "" {
				h["dtype"] = name
			}
		case "output.weight":
			h["tie_word_embeddings"] = false
		}
	}
	if h["vocab_size"] == nil {
		f.fail("token_embd.weight", "is missing")
	}
	_, q := f.g.tensor("blk.0.attn_q.bias")
	_, qkv := f.g.tensor("blk.0.attn_qkv.bias")
	h["attention_bias"] = (q || qkv) && !strings.HasPrefix(arch.modelType, "qwen2") // Qwen2 has biases without this flag
	_, up := f.g.tensor("blk.0.ffn_up.bias")
	h["mlp_bias"] = up
	h["use_bias"] = (q || qkv) && up
}

// checkQKV checks the rows of Q, K and V that are stored in one matrix and read as three.
func (f *ggufFields) checkQKV(arch ggufArch, name string, h hfConfig) {
	if _, fused := arch.names["attn_qkv"]; fused || f.err != nil {
		return
	}
	dim := int64(h["head_dim"].(int))
	kv, _ := h["num_key_value_heads"].(int)
	rows := (int64(h["num_attention_heads"].(int)) + 2*int64(kv)) * dim
	for _, t := range f.g.tensors {
		if !strings.Contains(t.Name, ".attn_qkv.") {
			continue
		}
		if name == "gemma4" {
			f.fail(t.Name, "is Q, K and V in one matrix; in files of gemma4, whose layers differ, they are read apart")
		} else if len(t.Shape) == 1 && t.Format.Quantized() {
			f.fail(t.Name, "is a quantized bias")
		} else if t.Shape[0] != rows {
			f.fail(t.Name, "has %d rows, Q, K and V have %d", t.Shape[0], rows)
		}
	}
}

func torchName(f kernels.Format) string {
	return map[kernels.Format]string{kernels.F32: "float32", kernels.F16: "float16", kernels.BF16: "bfloat16"}[f]
}

// tensor returns a tensor by its name in the file.
func (g *gguf) tensor(name string) (TensorInfo, bool) {
	for _, t := range g.tensors {
		if t.Name == name {
			return t, true
		}
	}
	return TensorInfo{}, false
}
