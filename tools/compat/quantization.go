package compat

import (
	"encoding/json"
	"path"
	"regexp"
	"strings"

	"vapp.dev/engine/checkpoint"
)

// scheme is the memory format of a linear layer's weight.
type scheme int

const (
	plain      scheme = iota
	fp8Blocks         // fp8 checkpoint with a scale for each block
	fp8Tensor         // … for each tensor
	fp8Channel        // … for each output channel
	fp8Online         // converted to fp8 at load
	mxfp4             // experts only
	packed            // integers of 4 or 8 bits with a scale for each group: AWQ, GPTQ, compressed-tensors
)

// quantization has the parts of quantization_config that affect memory.
type quantization struct {
	scheme         scheme
	method         string // quant_method, "" where there is none
	blockN, blockK int64
	static         bool            // the checkpoint has activation scales
	integers       integers        // of packed
	names          map[string]bool // modules that are not converted, by name …
	globs          []glob
	patterns       []*regexp.Regexp
	err            error
}

func readQuantization(c checkpoint.Config, text *object) quantization {
	raw := c.QuantizationConfig
	if raw == nil {
		raw, _ = text.raw("quantization_config")
	}
	if raw == nil || string(raw) == "null" {
		return quantization{}
	}
	o := newObject("config.quantization_config.", raw)
	q := quantization{method: o.text("quant_method"), names: map[string]bool{}}
	switch q.method {
	case "fp8":
		q.readFp8(o)
	case "compressed-tensors":
		q.readCompressed(o)
	case "mxfp4":
		q.scheme = mxfp4
	case "awq":
		q.readAWQ(o)
	case "gptq":
		q.readGPTQ(o)
	default:
		o.fail("quant_method", "is %q: known here are awq, compressed-tensors, fp8, gptq and mxfp4", clip(q.method))
	}
	for _, e := range append(o.texts("modules_to_not_convert"), o.texts("ignore")...) {
		q.keep(o, e)
	}
	q.err = o.err
	return q
}

func (q *quantization) readFp8(o *object) {
	q.static = o.text("activation_scheme") == "static"
	q.scheme = fp8Tensor
	v, ok := o.raw("weight_block_size")
	if !ok {
		return
	}
	var size []int64
	if json.Unmarshal(v, &size) != nil || len(size) != 2 || min(size[0], size[1]) < 16 || max(size[0], size[1]) > 4096 {
		o.fail("weight_block_size", "is %s, not two sizes of 16 to 4096", clip(string(v)))
		return
	}
	q.scheme, q.blockN, q.blockK = fp8Blocks, size[0], size[1]
}

// readCompressed reads a compressed-tensors config with one group of 8-bit float weights.
func (q *quantization) readCompressed(o *object) {
	groups := o.inner("config_groups")
	if groups == nil || len(groups.m) != 1 {
		o.fail("config_groups", "is not one group")
		return
	}
	for name := range groups.m {
		g := groups.inner(name)
		if g == nil {
			o.fail("config_groups", "has no group")
			return
		}
		w := g.inner("weights")
		if w != nil && w.text("type") == "int" && w.countOr("num_bits", 1, 64, 0) == 4 && g.inner("input_activations") == nil {
			q.readPacked(w)
			if o.err == nil {
				o.err = w.err
			}
			return
		}
		if w != nil && w.text("type") == "int" {
			o.fail("config_groups", "has integer weights (W8A8, W8A16): what vLLM makes of them was not seen, only of 8-bit floats; vapp plan without --compat plans them")
			return
		}
		if w == nil || w.countOr("num_bits", 1, 64, 0) != 8 || w.text("type") != "float" {
			o.fail("config_groups", "does not say 8-bit floats")
			return
		}
		if a := g.inner("input_activations"); a != nil {
			q.static = !a.flag("dynamic", false)
		}
		switch s := w.text("strategy"); s {
		case "tensor":
			q.scheme = fp8Tensor
		case "channel":
			q.scheme = fp8Channel
		default:
			o.fail("config_groups", "strategy is %q: known here are tensor and channel", clip(s))
		}
	}
}

// keep adds modules that are not converted: a name, a shell pattern, or a regular expression after
// "re:".
func (q *quantization) keep(o *object, entry string) {
	if re, ok := strings.CutPrefix(entry, "re:"); ok {
		r, err := regexp.Compile(re)
		if err != nil {
			o.fail("ignore", "%q is no regular expression", clip(entry))
			return
		}
		q.patterns = append(q.patterns, r)
		return
	}
	if strings.ContainsAny(entry, "*?[\\") {
		before, after, _ := strings.Cut(entry, "*")
		g := glob{whole: entry, before: before, after: after}
		g.single = !strings.ContainsAny(before+after, "*?[\\")
		q.globs = append(q.globs, g)
		if len(q.globs)+len(q.patterns) > 256 {
			o.fail("modules_to_not_convert", "has more than 256 patterns")
		}
		return
	}
	q.names[entry] = true
}

// skips reports whether a module stays in the model's dtype, because it or a module that contains
// it is listed.
func (q *quantization) skips(module string) bool {
	for m := module; m != ""; m = m[:max(0, strings.LastIndexByte(m, '.'))] {
		if q.names[m] {
			return true
		}
	}
	for _, g := range q.globs {
		if g.match(module) {
			return true
		}
	}
	for _, r := range q.patterns {
		if r.MatchString(module) {
			return true
		}
	}
	return false
}

// glob is a shell pattern. Most patterns have a single star and are matched without path.Match.
type glob struct {
	whole, before, after string
	single               bool
}

func (g glob) match(module string) bool {
	if !g.single {
		exact, _ := path.Match(g.whole, module)
		below, _ := path.Match(g.whole+".*", module)
		return exact || below
	}
	rest, ok := strings.CutPrefix(module, g.before)
	return ok && (strings.HasSuffix(rest, g.after) || strings.Contains(rest, g.after+"."))
}
