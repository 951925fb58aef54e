package importer

import (
	"encoding/json"
	"slices"
	"strconv"
	"strings"

	"vapp.dev/schema"
)

// eager turns CUDA graphs off.
func eager(d *draft, s setting) {
	if s.on {
		d.set("cudagraph.mode", `"none"`, s)
	} else {
		delete(d.fields, "cudagraph.mode")
	}
}

// graphModes are vLLM's modes, which it accepts in any case.
var graphModes = map[string]string{
	"none": "none", "piecewise": "piecewise", "full": "full", "full_decode_only": "full_decode_only", "full_and_piecewise": "full_and_piecewise",
}

// compiler are the keys of a compilation config that concern torch.compile.
var compiler = []string{
	"level", "debug_dump_path", "cache_dir", "local_cache_dir", "compile_cache_save_format", "backend", "custom_ops", "splitting_ops",
	"use_inductor", "inductor_compile_config", "inductor_passes", "compile_sizes", "compile_ranges_split_points", "compile_ranges_endpoints",
	"pass_config", "use_inductor_graph_partition", "dynamic_shapes_config", "compile_mm_encoder", "fast_moe_cold_start", "mode",
	"cudagraph_num_of_warmups", "cudagraph_copy_inputs", "cudagraph_specialize_lora", "cudagraph_mm_encoder", "encoder_cudagraph_token_budgets",
	"encoder_cudagraph_max_images_per_batch", "ir_enable_torch_wrap", "static_all_moe_layers",
}

// graphKeys are the keys that have a field in a profile.
var graphKeys = []string{"cudagraph_mode", "cudagraph_capture_sizes", "max_cudagraph_capture_size", "max_capture_size", "full_cuda_graph", "use_cudagraph"}

// compilation converts the graph settings of a compilation config. -O and a plain number are
// optimization levels, as in vLLM since 0.12: 0 without graphs, 1 piecewise.
func compilation(d *draft, s setting) {
	if s.keys == nil {
		switch v := s.value(); v {
		case "0":
			d.set("cudagraph.mode", `"none"`, s)
		case "1":
			d.set("cudagraph.mode", `"piecewise"`, s)
		case "2", "3":
			d.notef(s, no+"vapp compiles nothing at start; cudagraph says which graphs there are")
		default:
			d.invalid(s, `a level from 0 to 3, or JSON such as {"cudagraph_mode": "NONE"}`)
		}
		return
	}
	for _, key := range sortedKeys(s.keys) {
		d.graphKey(s, key, s.keys[key])
	}
}

// graphKey converts one key of a compilation config.
func (d *draft) graphKey(s setting, key string, v any) {
	sub := s.flag.name() + "." + key
	one := setting{flag: s.flag, given: sub, values: []word{{text: compact(v), at: s.at}}, at: s.at}
	switch key {
	case "cudagraph_mode":
		name, _ := v.(string)
		name = strings.TrimPrefix(strings.ToLower(name), "cudagraphmode.")
		if _, ok := graphModes[name]; !ok {
			one.values[0].text = strings.Trim(one.value(), `"`)
			d.unknownWord(one, graphModes)
			return
		}
		d.set("cudagraph.mode", quote(name), one)
	case "full_cuda_graph", "use_cudagraph":
		on, ok := v.(bool)
		if !ok {
			d.invalid(one, "true, false")
		} else if key == "full_cuda_graph" && on {
			d.set("cudagraph.mode", `"full"`, one)
		} else if key == "use_cudagraph" && !on {
			d.set("cudagraph.mode", `"none"`, one)
		}
	case "cudagraph_capture_sizes":
		list, ok := v.([]any)
		if !ok && v != nil {
			d.invalid(one, "a list of numbers")
		} else if v != nil {
			d.sizes(one, list)
		}
	case "max_cudagraph_capture_size", "max_capture_size":
		largestCapture(d, one)
	default:
		if near := nearestKey(key, graphKeys); near != "" && !slices.Contains(compiler, key) {
			d.problem(Unknown, s.at, "did you mean "+near+"?", "%s: no such key of %s", short(key), s.flag.name())
			return
		}
		d.note(d.sourceText(one), no+"vapp compiles nothing at start")
	}
}

// sizes sets the capture sizes from a list.
func (d *draft) sizes(s setting, list []any) {
	var out []int
	for _, v := range list {
		n, err := strconv.Atoi(compact(v))
		if err != nil || n < 1 {
			d.invalid(s, "numbers of tokens, 1 or more")
			return
		}
		out = append(out, n)
	}
	d.captured(s, out)
}

// captured sets the capture sizes, sorted and without duplicates.
func (d *draft) captured(s setting, sizes []int) {
	slices.Sort(sizes)
	sizes = slices.Compact(sizes)
	if len(sizes) == 0 {
		d.set("cudagraph.mode", `"none"`, s)
		return
	}
	out := make([]string, len(sizes))
	for i, n := range sizes {
		out[i] = strconv.Itoa(n)
	}
	d.set("cudagraph.captureSizes", "["+strings.Join(out, ", ")+"]", s)
}

// captureSizes converts --cudagraph-capture-sizes. A single number is the largest size, as for
// --cuda-graph-sizes.
func captureSizes(d *draft, s setting) {
	if len(s.values) == 1 && strings.ReplaceAll(s.given, "_", "-") == "--cuda-graph-sizes" {
		largestCapture(d, s)
		return
	}
	var list []any
	for _, v := range s.values {
		for _, n := range strings.FieldsFunc(v.text, func(r rune) bool { return r == ',' || r == '[' || r == ']' || r == ' ' }) {
			list = append(list, n)
		}
	}
	d.sizes(s, list)
}

// largestCapture sets the sizes that vLLM's rule gives up to a largest one.
func largestCapture(d *draft, s setting) {
	n, err := strconv.Atoi(s.value())
	if err != nil || n < 0 || n > 65536 {
		d.invalid(s, "a number of tokens from 0 to 65536")
		return
	}
	d.captured(s, schema.CaptureSizes(n))
}

// settleGraphs removes the sizes where nothing is captured.
func (d *draft) settleGraphs() {
	sizes, ok := d.fields["cudagraph.captureSizes"]
	if ok && d.fields["cudagraph.mode"].cue == `"none"` {
		delete(d.fields, "cudagraph.captureSizes")
		d.notef(sizes.by, "without effect beside %s", d.fields["cudagraph.mode"].by.given)
	}
}

// sortedKeys returns the keys of an object, sorted.
func sortedKeys(m map[string]any) []string {
	var keys []string
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}

// compact returns a decoded value as JSON, texts without quotes.
func compact(v any) string {
	if s, ok := v.(string); ok {
		return s
	}
	b, err := json.Marshal(v)
	if err != nil {
		return "?"
	}
	return string(b)
}
