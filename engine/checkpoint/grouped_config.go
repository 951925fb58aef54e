package checkpoint

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"vapp.dev/kernels"
)

// Grouping is how a checkpoint stores the weights of linear layers in few bits: codes, and for each
// group of neighbours in a row a scale and a zero point, in tensors of their own. Open presents
// them as one tensor in blocks (grouped.go).
type Grouping struct {
	Dialect string // GPTQ, AWQ, Compressed or ModelOpt: quant_method
	Bits    int    // of a code
	Size    int    // inputs of a group; 0: the whole row
	LessOne bool   // zero points are stored minus one: GPTQ's checkpoint_format gptq
	// NoZeros means that there is no tensor of zero points: the middle code is 0.
	NoZeros bool
	// Ordered means that g_idx gives the group of each input (act-order).
	Ordered bool
	// Float means NVFP4: codes are E2M1, scales E4M3, and a matrix has one more scale.
	Float bool
	// Skip lists the modules that are stored in torch_dtype, in the syntax of ignore of
	// compressed-tensors.
	Skip []string
}

// The dialects of Grouping.
const (
	GPTQ       = "gptq"
	AWQ        = "awq"
	Compressed = "compressed-tensors"
	ModelOpt   = "modelopt"
)

// GroupingError reports a quantization_config of a known dialect that is not read.
type GroupingError struct{ What, Why string }

func (e *GroupingError) Error() string { return e.What + " is not supported: " + e.Why }

// Format returns the format of the joined tensors: integer codes of fewer than eight bits become I4.
func (g Grouping) Format() kernels.Format {
	switch {
	case g.Float:
		return kernels.NVFP4
	case g.Bits == 8:
		return kernels.Q8_0
	}
	return kernels.I4
}

// groupElems is how many inputs a block of integer codes has: it divides every group.
const groupElems = 32

// maxGroup bounds group_size.
const maxGroup = 1 << 16

// groupingJSON is the JSON of quantization_config in the four dialects. Values of any type are
// read as text, so that an unexpected one is refused by its key.
type groupingJSON struct {
	Method    string                     `json:"quant_method"`
	Bits      json.RawMessage            `json:"bits"`
	Group     json.RawMessage            `json:"group_size"`
	Order     json.RawMessage            `json:"desc_act"`
	Format    string                     `json:"checkpoint_format"`
	Marlin    json.RawMessage            `json:"is_marlin_format"`
	Head      json.RawMessage            `json:"lm_head"`
	Dynamic   map[string]json.RawMessage `json:"dynamic"`
	PackDtype string                     `json:"pack_dtype"`
	Only      json.RawMessage            `json:"modules_in_block_to_quantize"`
	Skip      []string                   `json:"modules_to_not_convert"`
	Version   string                     `json:"version"`
	Zeros     json.RawMessage            `json:"zero_point"`
	// compressed-tensors and modelopt:
	Ignore   []string             `json:"ignore"`
	Packed   string               `json:"format"`
	Groups   map[string]groupJSON `json:"config_groups"`
	Sparsity struct {
		Format string `json:"format"`
	} `json:"sparsity_config"`
	// modelopt:
	Algo     string   `json:"quant_algo"`
	Excluded []string `json:"exclude_modules"`
}

// groupJSON is one of config_groups.
type groupJSON struct {
	Targets []string        `json:"targets"`
	Format  string          `json:"format"`
	Inputs  json.RawMessage `json:"input_activations"`
	Outputs json.RawMessage `json:"output_activations"`
	Weights *struct {
		Bits      int             `json:"num_bits"`
		Type      string          `json:"type"`
		Strategy  string          `json:"strategy"`
		Group     *int            `json:"group_size"`
		Symmetric *bool           `json:"symmetric"`
		Order     json.RawMessage `json:"actorder"`
		Dynamic   json.RawMessage `json:"dynamic"`
	} `json:"weights"`
}

// GroupingOf reads a quantization_config of GPTQ, AWQ (GEMM), compressed-tensors' packed int4, or
// NVFP4 of compressed-tensors or ModelOpt. ok is false for other dialects, which have no groups to join.
func GroupingOf(raw json.RawMessage) (g Grouping, ok bool, err error) {
	var q groupingJSON
	if len(raw) == 0 {
		return g, false, nil
	}
	if json.Unmarshal(raw, &q) != nil {
		var named struct {
			Method string `json:"quant_method"`
		}
		if json.Unmarshal(raw, &named) == nil && (named.Method == GPTQ || named.Method == AWQ) {
			return g, false, &GroupingError{"quantization_config of " + named.Method, "it is not an object of the known shape"}
		}
		return g, false, nil
	}
	switch q.Method {
	case GPTQ:
		g, err = q.gptq()
	case AWQ:
		g, err = q.awq()
	case Compressed:
		switch {
		case q.fourBits("int"):
			g, err = q.compressed()
		case q.fourBits("float"):
			g, err = q.compressedFloat()
		default:
			return g, false, nil
		}
	case ModelOpt, "modelopt_fp4":
		if q.Algo != nvfp4 {
			return g, false, nil
		}
		g, err = q.modelOpt()
	default:
		return g, false, nil
	}
	return g, err == nil, err
}

func refuse(what, why string) (Grouping, error) { return Grouping{}, &GroupingError{what, why} }

// absent reports whether v is missing, null or one of the texts in none.
func absent(v json.RawMessage, none ...string) bool {
	s := string(bytes.TrimSpace(v))
	return s == "" || s == "null" || slices.Contains(none, s)
}

func (q groupingJSON) gptq() (Grouping, error) {
	g := Grouping{Dialect: GPTQ, Skip: q.Skip, Ordered: !absent(q.Order, "false")}
	if g.Ordered && string(bytes.TrimSpace(q.Order)) != "true" {
		return refuse("gptq with desc_act "+clip(string(q.Order)), "it is true or false")
	}
	switch q.Format {
	case "", "gptq":
		g.LessOne = true
	case "gptq_v2":
	default:
		return refuse("gptq with checkpoint_format "+strconv.Quote(clip(q.Format)), "gptq and gptq_v2 are read; convert the checkpoint to one of them")
	}
	switch {
	case !absent(q.Marlin, "false"):
		return refuse("gptq with is_marlin_format", "codes in the order of a GPU kernel are not read; take the checkpoint in the format gptq")
	case q.PackDtype != "" && q.PackDtype != "int32":
		return refuse("gptq with pack_dtype "+strconv.Quote(clip(q.PackDtype)), "codes packed in int32 are read")
	case !absent(q.Only, "[]"):
		return refuse("gptq with modules_in_block_to_quantize", "every linear layer of a block is read as quantized")
	case absent(q.Head, "false"):
		g.Skip = append(slices.Clone(g.Skip), "lm_head")
	case string(bytes.TrimSpace(q.Head)) != "true":
		return refuse("gptq with lm_head "+clip(string(q.Head)), "it is true or false")
	}
	for _, name := range slices.Sorted(maps.Keys(q.Dynamic)) {
		pattern, without := strings.CutPrefix(name, "-:")
		if !without {
			return refuse("gptq with dynamic "+strconv.Quote(clip(name)), "layers with settings of their own are not read; those that are left out (-:) are")
		}
		g.Skip = append(slices.Clone(g.Skip), "re:"+pattern)
	}
	return g, g.sizes(q.Bits, q.Group, 2, 3, 4, 8)
}

func (q groupingJSON) awq() (Grouping, error) {
	g := Grouping{Dialect: AWQ, Skip: append(slices.Clone(q.Skip), "lm_head")}
	switch {
	case !strings.EqualFold(q.Version, "gemm") && q.Version != "":
		return refuse("awq of version "+strconv.Quote(clip(q.Version)), "gemm is read; other versions store codes in the order of one kernel")
	case !absent(q.Zeros, "true"):
		return refuse("awq with zero_point "+clip(string(q.Zeros)), "codes with zero points are read")
	}
	return g, g.sizes(q.Bits, q.Group, 4)
}

// sizes reads bits, one of the supported ones, and group_size.
func (g *Grouping) sizes(bits, group json.RawMessage, supported ...int) error {
	var err error
	if g.Bits, err = strconv.Atoi(string(bytes.TrimSpace(bits))); err != nil || !slices.Contains(supported, g.Bits) {
		return &GroupingError{g.Dialect + " with bits " + clip(string(bits)), "codes of " + numbers(supported) + " bits are read"}
	}
	if g.Size, err = strconv.Atoi(string(bytes.TrimSpace(group))); err != nil {
		return &GroupingError{g.Dialect + " with group_size " + clip(string(group)), "it is a number"}
	}
	if g.Size == -1 {
		g.Size = 0
		return nil
	}
	return g.checkSize(g.Dialect)
}

// numbers returns "2, 3, 4 or 8".
func numbers(list []int) string {
	var s []string
	for _, n := range list {
		s = append(s, strconv.Itoa(n))
	}
	if last := len(s) - 1; last > 0 {
		return strings.Join(s[:last], ", ") + " or " + s[last]
	}
	return s[0]
}

func (g *Grouping) checkSize(what string) error {
	if g.Size < groupElems || g.Size > maxGroup || g.Size%groupElems != 0 {
		return &GroupingError{fmt.Sprintf("%s with group_size %d", what, g.Size), fmt.Sprintf("multiples of %d up to %d are read, and -1 for whole rows", groupElems, maxGroup)}
	}
	return nil
}

// fourBits reports whether a group has 4-bit weights of a type: int or float.
func (q groupingJSON) fourBits(kind string) bool {
	for _, g := range q.Groups {
		if g.Weights != nil && g.Weights.Bits == 4 && g.Weights.Type == kind {
			return true
		}
	}
	return false
}

// only returns the group of a compressed-tensors config that has one, for all linear layers, with weights
// packed in a format. fourBits has to hold: that group has weights.
func (q groupingJSON) only(what, packed string) (groupJSON, error) {
	fail := func(with, why string) (groupJSON, error) { return groupJSON{}, &GroupingError{what + with, why} }
	if f := q.Sparsity.Format; f != "" && f != "dense" {
		return fail(" with sparsity "+strconv.Quote(clip(f)), "only dense weights are supported")
	}
	if len(q.Groups) != 1 {
		return fail(fmt.Sprintf(" with %d config_groups", len(q.Groups)), "one group is read")
	}
	for _, g := range q.Groups {
		format := g.Format
		if format == "" {
			format = q.Packed
		}
		switch {
		case len(g.Targets) != 1 || g.Targets[0] != "Linear":
			return fail(" with targets "+clip(fmt.Sprintf("%q", g.Targets)), `"Linear" is read`)
		case format != packed:
			return fail(" in format "+strconv.Quote(clip(format)), packed+" is read")
		case !absent(g.Outputs):
			return fail(" with output_activations", "outputs stay in float")
		case !absent(g.Weights.Dynamic, "false"):
			return fail(" with dynamic "+clip(string(g.Weights.Dynamic)), "weights with stored scales are read")
		}
		return g, nil
	}
	return groupJSON{}, nil
}

func (q groupingJSON) compressed() (Grouping, error) {
	const int4 = "compressed-tensors int4"
	out := Grouping{Dialect: Compressed, Bits: 4, NoZeros: true, Skip: q.Ignore}
	g, err := q.only(int4, "pack-quantized")
	if err != nil {
		return Grouping{}, err
	}
	if !absent(g.Inputs) {
		return refuse(int4+" with input_activations", "activations stay in float")
	}
	w := g.Weights
	out.NoZeros = w.Symmetric == nil || *w.Symmetric
	switch strings.ToLower(string(bytes.TrimSpace(w.Order))) {
	case "", "null", "false", `"weight"`, `"static"`:
	case `"group"`, `"dynamic"`, "true":
		out.Ordered = true
	default:
		return refuse(int4+" with actorder "+clip(string(w.Order)), "group, weight, static, dynamic and null are read")
	}
	switch w.Strategy {
	case "channel":
		return out, nil
	case "group":
		if w.Group == nil {
			return refuse(int4+" with group_size null", "it is a number")
		}
		if out.Size = *w.Group; out.Size == -1 {
			out.Size = 0
			return out, nil
		}
		return out, out.checkSize(int4)
	}
	return refuse(int4+" with strategy "+strconv.Quote(clip(w.Strategy)), "channel and group are read")
}
