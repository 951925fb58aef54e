package models

import (
	"fmt"

	"vapp.dev/engine/backend"
	"vapp.dev/engine/checkpoint"
	"vapp.dev/kernels"
)

// linearAttention is the layer_types value of a gated delta net.
const linearAttention = "linear_attention"

// qwen35 is Qwen3.5 (transformers: Qwen3_5ForConditionalGeneration, and Qwen3_5ForCausalLM without
// the vision tower; Qwen3_5Moe… with experts in every layer). Most layers are gated delta nets, whose state has a fixed size. Every fourth
// layer is attention with a gate on its output. All norms except those of the delta nets add 1 to
// their stored weights; in GGUF files it is added already.
//
// Rotary positions are multimodal and cover a quarter of each head: the frequencies alternate
// between the time, row and column of a token. All three are equal for text, where this is plain
// rotary embedding. It is recorded as plain rotary embedding unless the build keeps the vision
// tower.
type qwen35 struct {
	vocabulary
	adaptable
	cfg     qwen35Config
	stage   stage
	weights []backend.WeightSpec
	layers  []qwen35Layer // of the stage
	freqs   backend.WeightID
	norm    backend.WeightID
	rank    qwen35Rank
	convAs  kernels.Format // format of the convolution's inputs in the state
	drafter *qwen35Drafter // nil: no proposals
	tower   *qwen35Tower   // nil: text only, or a later stage
}

// qwen35Rank is a rank's share of a layer's heads and columns.
type qwen35Rank struct{ heads, kvHeads, keyHeads, valueHeads int }

// qwen35Config adds the config fields that only this family reads.
type qwen35Config struct {
	checkpoint.Config
	prefix           string // of the text model's tensors
	types            []string
	kernel           int
	keyHeads, keyDim int
	valueHeads       int
	valueDim         int
	rope             checkpoint.RopeAngles
	mtpLayers        int  // layers of the MTP head; 0: no head
	mtpOwnEmbeddings bool // the MTP head has a separate table
	gated, biased    bool
	stateDtype       string
	vision           *qwen35Vision        // nil: no tower
	experts          *mixture             // nil: a dense MLP
	sparse           func(layer int) bool // layers with experts
	normOffset       float32              // added to the stored weights of norms
	tiled            bool                 // the columns of out_proj are in tiles of value heads (GGUF)
	splitQKVZ        bool                 // in_proj_qkvz is two matrices (GGUF of Qwen3-Next)
}

const (
	qwen35Text       = "Qwen3_5ForCausalLM"
	qwen35Multimodal = "Qwen3_5ForConditionalGeneration"

	qwen35MoEText       = "Qwen3_5MoeForCausalLM"
	qwen35MoEMultimodal = "Qwen3_5MoeForConditionalGeneration"

	qwen3Next = "Qwen3NextForCausalLM"
)

// qwen35Sees reports whether an architecture has a vision tower.
func qwen35Sees(architecture string) bool {
	return architecture == qwen35Multimodal || architecture == qwen35MoEMultimodal
}

// qwen35Experts returns the experts, nil for the dense architectures, and which layers have them.
// Files have stacks of them or, if they are quantized, a matrix for each; those of Qwen3-Next have no
// stacks.
func qwen35Experts(c checkpoint.Config) (*mixture, func(layer int) bool, error) {
	if c.Architecture == qwen3Next {
		return qwen3NextExperts(c)
	}
	if c.Architecture != qwen35MoEText && c.Architecture != qwen35MoEMultimodal {
		return nil, nil, nil
	}
	m, _, err := qwenMixture(c, true)
	if err != nil {
		return nil, nil, err
	}
	m.softmax(true)
	q, err := quantOf(c)
	if q.format == kernels.Invalid && c.Dialect != "gguf" {
		m.gate, m.up, m.down = "experts.gate_up_proj", "", "experts.down_proj"
	}
	return &m, func(int) bool { return true }, err
}

// feedForward returns what follows a layer's mixer.
func (q qwen35Config) feedForward(layer int) feedForward {
	if q.experts != nil && q.sparse(layer) {
		return *q.experts
	}
	return denseMLP{c: q.Config, width: q.IntermediateSize}
}

func qwen35Family(architecture string) family {
	return family{architecture: architecture, tensors: qwen35Tensors, build: newQwen35, check: checkQwen35, skip: qwen35Skips, pipes: true}
}

// readQwen35 reads the config; defaults are transformers'.
func readQwen35(c checkpoint.Config) (qwen35Config, error) {
	q := qwen35Config{Config: c, prefix: "model.", normOffset: 1}
	if c.Dialect == "gguf" {
		q.normOffset = 0 // the converter adds 1
	}
	if qwen35Sees(c.Architecture) {
		q.prefix = "model.language_model."
	}
	s, err := c.Section("")
	if err != nil {
		return q, err
	}
	const most = 1 << 14 // heads, and dimensions of a head
	q.kernel = s.CountOr("linear_conv_kernel_dim", 2, 256, 4)
	q.keyHeads = s.CountOr("linear_num_key_heads", 1, most, 16)
	q.valueHeads = s.CountOr("linear_num_value_heads", 1, most, 32)
	q.keyDim = s.CountOr("linear_key_head_dim", 1, most, 128)
	q.valueDim = s.CountOr("linear_value_head_dim", 1, most, 128)
	q.tiled = c.Dialect == "gguf" && q.keyHeads != q.valueHeads && c.Architecture != qwen3Next
	q.splitQKVZ = s.FlagOr("in_proj_qkvz_split", false)
	q.mtpLayers = s.CountOr("mtp_num_hidden_layers", 0, 64, 0)
	q.mtpOwnEmbeddings = s.FlagOr("mtp_use_dedicated_embeddings", false)
	q.gated, q.biased = s.FlagOr("attn_output_gate", true), s.FlagOr("attention_bias", false)
	q.stateDtype = s.TextOr("mamba_ssm_dtype", "float32")
	q.types = c.LayerTypes
	period := s.CountOr("full_attention_interval", 1, 1<<20, 4)
	if err := s.Err(); err != nil {
		return q, err
	}
	if q.types == nil {
		q.types = everyNthFull(c.NumLayers, period, linearAttention)
	}
	rope, err := c.Rope(fullAttention)
	if err != nil {
		return q, err
	}
	const quarter = 0.25 // where the config gives no factor
	if of := s.Section("rope_parameters"); !s.Has("partial_rotary_factor") && (of == nil || !of.Has("partial_rotary_factor")) {
		rope.PartialRotaryFactor = quarter
	}
	if q.rope, err = rope.Angles(c.HeadDim); err != nil {
		return q, err
	}
	if q.vision, err = readQwen35Vision(c); err != nil {
		return q, err
	}
	q.experts, q.sparse, err = qwen35Experts(c)
	return q, err
}

// checkQwen35 refuses configs that the recorded forward pass does not implement.
func checkQwen35(c checkpoint.Config) error {
	q, err := readQwen35(c)
	if err != nil {
		return err
	}
	full := false
	for i, kind := range q.types {
		full = full || kind == fullAttention
		if kind != fullAttention && kind != linearAttention {
			return &UnsupportedError{fmt.Sprintf("layer_types %q of layer %d", kind[:min(len(kind), 40)], i), "Qwen3.5 has " + linearAttention + " and " + fullAttention}
		}
	}
	switch {
	case !full:
		return &UnsupportedError{"layer_types of " + linearAttention + " alone", "pages of at least one layer of " + fullAttention + " hold the tokens of a sequence"}
	case c.HiddenAct != "silu":
		return &UnsupportedError{"hidden_act " + c.HiddenAct, "Qwen3.5 has silu"}
	case q.experts == nil && (c.IntermediateSize == 0 || c.NumExperts > 0):
		return &UnsupportedError{"experts in " + c.Architecture, "it has a dense MLP; those with experts are " + qwen35MoEText + " and " + qwen35MoEMultimodal}
	case q.experts != nil && c.IntermediateSize == 0 && q.dense() >= 0:
		return &UnsupportedError{fmt.Sprintf("layer %d of %s without experts", q.dense(), c.Architecture), "the config has no intermediate_size for its MLP"}
	case q.biased:
		return &UnsupportedError{"attention_bias", "Qwen3.5's projections have none"}
	case !q.gated:
		return &UnsupportedError{"attn_output_gate false", "transformers gates every layer of attention"}
	case q.stateDtype != "float32":
		return &UnsupportedError{"mamba_ssm_dtype " + q.stateDtype, "recurrent states are kept as float32"}
	case q.valueHeads%q.keyHeads != 0:
		return &UnsupportedError{fmt.Sprintf("linear_num_value_heads %d", q.valueHeads), fmt.Sprintf("%d key heads do not divide them", q.keyHeads)}
	}
	return nil
}

// channels returns the number of columns of the convolution for n key heads and m value heads.
func (q qwen35Config) channels(n, m int) int { return 2*n*q.keyDim + m*q.valueDim }

// Classes returns the class of full attention and that of the delta nets' states. A step that
// verifies proposals keeps one state after each proposal. So a layer's matrices have that many
// copies, and the convolution's inputs that many rows, in addition.
func (m *qwen35) Classes(blockSize int, f kernels.Format) []backend.KVClass {
	inputs := m.convAs
	if f == kernels.F32 {
		inputs = f // like keys and values
	}
	verified := max(m.Draft, m.Verify)
	full := backend.KVClass{Name: "full", Format: f, BlockSize: blockSize, KVHeads: m.rank.kvHeads, HeadDim: m.cfg.HeadDim, Plane: !m.pools()}
	state := backend.KVClass{Name: "state", Format: kernels.F32, State: &backend.StateShape{
		ConvRows: m.cfg.kernel - 1 + verified, ConvCols: m.cfg.channels(m.rank.keyHeads, m.rank.valueHeads), ConvFormat: inputs,
		Heads: m.rank.valueHeads, Rows: m.cfg.keyDim, Cols: m.cfg.valueDim, Copies: 1 + verified,
	}}
	for _, l := range m.layers {
		if l.attention != nil {
			full.Layers++
		} else {
			state.Layers++
		}
	}
	if m.drafter != nil {
		full.Layers++ // the MTP layer comes last
	}
	var out []backend.KVClass
	for _, c := range []backend.KVClass{full, state} {
		if c.Layers > 0 {
			out = append(out, c)
		}
	}
	return out
}

func (m *qwen35) Weights() []backend.WeightSpec { return m.weights }
func (m *qwen35) Vocab() int                    { return m.size }
