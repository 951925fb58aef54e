package enginetest

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"slices"
	"strings"

	"vapp.dev/engine/checkpoint"
	"vapp.dev/kernels"
)

// GGUF are the options of WriteGGUF.
type GGUF struct {
	// Format returns the format of each matrix by its Hugging Face name; nil means Q8_0.
	// Vectors are F32. Q4_K and Q6_K matrices are random blocks with a standard deviation of
	// 0.02, not the toy's weights.
	Format func(name string) kernels.Format
	Pre    string // tokenizer.ggml.pre; "" means smollm
	AddBOS *bool  // tokenizer.ggml.add_bos_token; nil leaves it out
}

// ggufNumber is the type number of each format in a GGUF file.
var ggufNumber = map[kernels.Format]uint32{
	kernels.F32: 0, kernels.F16: 1, kernels.Q4_0: 2, kernels.Q4_1: 3, kernels.Q8_0: 8,
	kernels.Q4_K: 12, kernels.Q6_K: 14, kernels.BF16: 30,
}

// ggufWriter builds the metadata of a GGUF file.
type ggufWriter struct {
	b    []byte
	keys int
}

func (w *ggufWriter) string(s string) {
	w.b = binary.LittleEndian.AppendUint64(w.b, uint64(len(s)))
	w.b = append(w.b, s...)
}

// key writes one metadata pair, whose value is a uint32, float32, bool, string, []string or []int32.
func (w *ggufWriter) key(name string, value any) {
	le := binary.LittleEndian
	w.keys++
	w.string(name)
	switch v := value.(type) {
	case int:
		w.b = le.AppendUint32(le.AppendUint32(w.b, 4), uint32(v))
	case float64:
		w.b = le.AppendUint32(le.AppendUint32(w.b, 6), math.Float32bits(float32(v)))
	case bool:
		w.b = append(le.AppendUint32(w.b, 7), map[bool]byte{true: 1}[v])
	case string:
		w.b = le.AppendUint32(w.b, 8)
		w.string(v)
	case []string:
		w.b = le.AppendUint64(le.AppendUint32(le.AppendUint32(w.b, 9), 8), uint64(len(v)))
		for _, s := range v {
			w.string(s)
		}
	case []int32:
		w.b = le.AppendUint64(le.AppendUint32(le.AppendUint32(w.b, 9), 5), uint64(len(v)))
		for _, n := range v {
			w.b = le.AppendUint32(w.b, uint32(n))
		}
	default:
		panic(fmt.Sprintf("enginetest: no GGUF type for %T", value))
	}
}

// WriteGGUF writes the toy o as one GGUF file with the same weights as WriteLlama (o.DType and
// o.Shards have no effect). Rows of Q and K are interleaved as llama.cpp's converter does.
func WriteGGUF(path string, o Llama, g GGUF) error {
	o = o.whole()
	cfg, err := o.Config()
	if err != nil {
		return err
	}
	weights, err := o.Weights()
	if err != nil {
		return err
	}
	w := &ggufWriter{}
	if err := w.metadata(o, cfg, g); err != nil {
		return err
	}
	var heads, body []byte
	count := 0
	add := func(name string, f kernels.Format, shape []int64, data []byte) {
		heads = appendTensor(heads, name, f, shape, len(body))
		body = append(body, data...)
		body = append(body, make([]byte, -len(body)&31)...)
		count++
	}
	for _, t := range o.Layout() {
		name, data := ggufName(t.Name), []byte(nil)
		t.Format = g.format(t)
		if block, _ := t.Format.Block(); t.RowElements()%int64(block) != 0 {
			return fmt.Errorf("%s: rows of %d are no whole %v blocks", t.Name, t.RowElements(), t.Format)
		}
		if t.Format == kernels.Q4_K || t.Format == kernels.Q6_K {
			data, err = randomBlocks(cfg, t, o.Seed)
		} else {
			data = encode(t.Format, weights[t.Name])
		}
		if err != nil {
			return err
		}
		if strings.Contains(name, "attn_q.") || strings.Contains(name, "attn_k.") {
			data = interleave(data, t, o.HeadDim)
		}
		add(name, t.Format, t.Shape, data)
	}
	if s := o.RopeScaling; s != nil && s.Type == "llama3" {
		factors, err := ropeFactors(cfg)
		if err != nil {
			return err
		}
		add("rope_freqs.weight", kernels.F32, []int64{int64(len(factors))}, encode(kernels.F32, factors))
	}
	le := binary.LittleEndian
	out := le.AppendUint32([]byte("GGUF"), 3)
	out = le.AppendUint64(le.AppendUint64(out, uint64(count)), uint64(w.keys))
	out = append(append(out, w.b...), heads...)
	out = append(out, make([]byte, -len(out)&31)...)
	return os.WriteFile(path, append(out, body...), 0o644)
}

func (g GGUF) format(t checkpoint.TensorInfo) kernels.Format {
	switch {
	case len(t.Shape) == 1:
		return kernels.F32
	case g.Format == nil:
		return kernels.Q8_0
	}
	return g.Format(t.Name)
}

func (w *ggufWriter) metadata(o Llama, cfg checkpoint.Config, g GGUF) error {
	tokenizer, err := checkpoint.SyntheticTokenizer(cfg)
	if err != nil {
		return err
	}
	var parsed struct {
		Model struct{ Vocab map[string]int }
	}
	if err := json.Unmarshal(tokenizer, &parsed); err != nil {
		return err
	}
	tokens, types := make([]string, o.Vocab), make([]int32, o.Vocab)
	for text, id := range parsed.Model.Vocab {
		tokens[id], types[id] = text, 1
	}
	types[o.Vocab-2], types[o.Vocab-1] = 3, 3
	if g.Pre == "" {
		g.Pre = "smollm"
	}
	w.key("general.architecture", "llama")
	w.key("general.alignment", 32)
	w.key("llama.block_count", o.Layers)
	w.key("llama.context_length", o.MaxPos)
	w.key("llama.embedding_length", o.Hidden)
	w.key("llama.feed_forward_length", o.Intermediate)
	w.key("llama.attention.head_count", o.Heads)
	w.key("llama.attention.head_count_kv", o.KVHeads)
	w.key("llama.attention.key_length", o.HeadDim)
	w.key("llama.attention.value_length", o.HeadDim)
	w.key("llama.attention.layer_norm_rms_epsilon", 1e-5)
	w.key("llama.rope.dimension_count", o.HeadDim)
	w.key("llama.rope.freq_base", o.RopeTheta)
	if s := o.RopeScaling; s != nil && s.Type == "linear" {
		w.key("llama.rope.scaling.type", "linear")
		w.key("llama.rope.scaling.factor", s.Factor)
	}
	w.key("tokenizer.ggml.model", "gpt2")
	w.key("tokenizer.ggml.pre", g.Pre)
	w.key("tokenizer.ggml.tokens", tokens)
	w.key("tokenizer.ggml.token_type", types)
	w.key("tokenizer.ggml.merges", []string{})
	w.key("tokenizer.ggml.bos_token_id", o.Vocab-2)
	w.key("tokenizer.ggml.eos_token_id", o.Vocab-1)
	if g.AddBOS != nil {
		w.key("tokenizer.ggml.add_bos_token", *g.AddBOS)
	}
	w.key("tokenizer.chat_template", ChatTemplate)
	return nil
}

func appendTensor(b []byte, name string, f kernels.Format, shape []int64, offset int) []byte {
	le := binary.LittleEndian
	b = append(le.AppendUint64(b, uint64(len(name))), name...)
	b = le.AppendUint32(b, uint32(len(shape)))
	for _, d := range slices.Backward(shape) {
		b = le.AppendUint64(b, uint64(d))
	}
	return le.AppendUint64(le.AppendUint32(b, ggufNumber[f]), uint64(offset))
}

// ggufName returns llama.cpp's name of a Hugging Face tensor.
func ggufName(name string) string {
	return strings.NewReplacer(
		"model.embed_tokens.", "token_embd.", "model.norm.", "output_norm.", "lm_head.", "output.",
		"model.layers.", "blk.", "input_layernorm", "attn_norm", "post_attention_layernorm", "ffn_norm",
		"self_attn.q_proj", "attn_q", "self_attn.k_proj", "attn_k", "self_attn.v_proj", "attn_v", "self_attn.o_proj", "attn_output",
		"mlp.gate_proj", "ffn_gate", "mlp.up_proj", "ffn_up", "mlp.down_proj", "ffn_down",
	).Replace(name)
}

// interleave orders the rows of Q or K (the elements of a bias) as GGUF has them: row i of the
// first half of a head goes to 2i, row i of the second half to 2i+1.
func interleave(data []byte, t checkpoint.TensorInfo, head int) []byte {
	n := int(t.Shape[0])
	size := len(data) / n
	out := make([]byte, len(data))
	for r := range n {
		in := r % head
		to := r - in + 2*(in%(head/2)) + in/(head/2)
		copy(out[to*size:(to+1)*size], data[r*size:(r+1)*size])
	}
	return out
}

func randomBlocks(cfg checkpoint.Config, t checkpoint.TensorInfo, seed uint64) ([]byte, error) {
	d, err := checkpoint.Dummy(cfg, []checkpoint.TensorInfo{t}, seed)
	if err != nil {
		return nil, err
	}
	b := make([]byte, t.Format.Bytes(t.Elements()))
	return b, d.ReadRows(t.Name, 0, int(t.Rows()), b)
}

// ropeFactors returns the unscaled frequencies divided by the scaled ones.
func ropeFactors(cfg checkpoint.Config) ([]float32, error) {
	scaled, err := cfg.RopeInvFreq()
	if err != nil {
		return nil, err
	}
	cfg.RopeScaling = checkpoint.RopeScaling{}
	plain, err := cfg.RopeInvFreq()
	for i := range plain {
		plain[i] /= scaled[i]
	}
	return plain, err
}
