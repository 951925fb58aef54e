package importer

import (
	"slices"
	"strconv"
	"strings"

	"vapp.dev/nearest"
)

// modelSource sets the model: a hub name or a path.
func modelSource(d *draft, s setting) {
	v := s.value()
	switch scheme, _, remote := strings.Cut(v, "://"); {
	case v == "":
		d.invalid(s, "a hub name or a path")
		return
	case remote:
		d.problem(Refused, s.at, "fetch it, and name the folder", "%s: %q: vapp reads local folders and files, not %s://", s.given, short(v), scheme)
		return
	}
	d.set("model.source", quote(v), s, pathRemark(v)...)
	if repo, quant, ok := strings.Cut(v, ":"); ok && strings.Count(repo, "/") == 1 && !strings.ContainsAny(repo[:1], "./~") {
		d.notef(s, no+"vapp does not pick %q from a hub; name the GGUF file", short(quant))
	}
}

// pathRemark returns the remark for a relative path.
func pathRemark(path string) []string {
	if strings.HasPrefix(path, "./") || strings.HasPrefix(path, "../") {
		return []string{"A path beside this file; the original may have begun elsewhere."}
	}
	return nil
}

// chatTemplate sets a template or its path.
func chatTemplate(d *draft, s setting) {
	d.set("parsers.chatTemplate", quote(s.value()), s, pathRemark(s.value())...)
}

// vLLM's quantization methods. "fp8" and "mxfp4" quantize at load in vLLM and vapp; the others name
// the format of a checkpoint.
var (
	inCheckpoint = []string{"gguf", "compressed-tensors", "modelopt", "modelopt_fp8", "modelopt_mixed", "fbgemm_fp8", "gpt_oss_mxfp4", "quark", "auto", "modelopt_fp4", "awq", "awq_marlin", "gptq", "gptq_marlin", "moe_wna16", "cpu_awq", "cpu_gptq"}
	notRead      = []string{
		"gptq_marlin_24", "gptq_bitblas", "bitblas", "auto-round", "inc", "autoround",
		"aqlm", "deepspeedfp", "marlin", "qqq", "squeezellm", "modelopt_mxfp8", "mxfp8", "petit_nvfp4", "torchao", "tpu_int8",
		"ipex", "neuron_quant", "rtn", "fp_quant", "humming", "online",
	}
	onlineFP8  = []string{"fp8", "ptpc_fp8", "fp8_per_tensor", "fp8_per_channel", "fp8_per_block"}
	onlineInt8 = []string{"experts_int8", "int8_per_channel_weight_only"}
)

// refusedFormats are methods whose import ends with an error: vapp neither reads their checkpoints nor
// quantizes to their formats, and the line without them would need several times the memory.
var refusedFormats = []string{"bitsandbytes", "eetq", "hqq"}

// quantize converts --quantization.
func quantize(d *draft, s setting) {
	v := strings.ToLower(s.value())
	known := slices.Concat(refusedFormats, inCheckpoint, notRead, onlineFP8, onlineInt8, []string{"mxfp4", "none"})
	switch {
	case v == "none":
		d.set("quantization", `"none"`, s)
	case v == "fp8" || v == "mxfp4":
		d.set("quantization", quote(v), s)
	case slices.Contains(onlineFP8, v):
		d.set("quantization", `"fp8"`, s, "vLLM: "+v+"; vapp's fp8 has its own scales.")
	case slices.Contains(onlineInt8, v):
		d.set("quantization", `"int8"`, s, "vLLM: "+v+"; vapp's int8 has its own scales.")
	case slices.Contains(refusedFormats, v):
		d.problem(Refused, s.at, "take the model as AWQ, GPTQ or GGUF, or its bf16 checkpoint with --quantization fp8 or mxfp4",
			"%s %s: vapp does not read weights of %s and does not quantize to its formats", s.given, short(s.value()), v)
	case slices.Contains(inCheckpoint, v):
		d.notef(s, "vapp reads from the checkpoint how its weights are stored")
	case slices.Contains(notRead, v):
		d.notef(s, no+"vapp reads bf16, fp16, fp32, fp8, mxfp4, AWQ, GPTQ and GGUF weights; take a checkpoint of that kind")
	default:
		words := map[string]string{}
		for _, k := range known {
			words[k] = ""
		}
		d.unknownWord(s, words)
	}
}

// generationConfig converts auto and vllm.
func generationConfig(d *draft, s setting) {
	switch v := s.value(); v {
	case "auto", "vllm":
		d.set("sampling.generationConfig", quote(v), s)
	default:
		d.notef(s, no+"vapp reads generation_config.json beside the weights; put the values into sampling")
	}
}

// blockSize converts the sizes that vapp supports.
func blockSize(d *draft, s setting) {
	n, err := strconv.Atoi(s.value())
	switch {
	case err != nil || n < 1:
		d.invalid(s, "a number of tokens")
	case !slices.Contains([]int{16, 32, 64, 128, 256}, n):
		d.notef(s, no+"vapp's pages hold 16, 32, 64, 128 or 256 tokens")
	default:
		d.set("memory.blockSize", strconv.Itoa(n), s)
	}
}

// quietStats converts --disable-log-stats.
func quietStats(d *draft, s setting) {
	if s.on {
		d.set("serve.statsInterval", `"0s"`, s)
	}
}

// hiddenMetrics accepts any release.
func hiddenMetrics(d *draft, s setting) {
	d.set("serve.metricsCompat", "true", s, "vLLM: metrics hidden since "+short(s.value())+".")
}

// apiKeys moves keys out of the command line: the profile refers to variables.
func apiKeys(d *draft, s setting) {
	var names []string
	clear := false
	for i, v := range s.values {
		name := "VLLM_API_KEY"
		if d.lex.program.Name != "vLLM" {
			name = "VAPP_API_KEY"
		}
		if i > 0 {
			name += "_" + strconv.Itoa(i+1)
		}
		if ref := variableName(v.text); v.missing != "" && ref != "" {
			name = ref
		} else if v.missing != "" {
			d.unresolved(v, s.given)
			return
		} else {
			clear = true
		}
		names = append(names, name)
	}
	d.keys(s, names, clear)
}

// keys sets serve.apiKeys to references to variables.
func (d *draft) keys(s setting, names []string, clear bool) {
	var list []string
	for _, n := range names {
		list = append(list, "{env: "+quote(n)+"}")
	}
	var remarks []string
	if clear {
		remarks = []string{"The key stood in clear text on the command line: change it, and give it to vapp up as " + strings.Join(names, ", ") + "."}
	}
	d.set("serve.apiKeys", "["+strings.Join(list, ", ")+"]", s, remarks...)
}

// variableName returns NAME of $NAME, ${NAME} or $(NAME); "" where the text is anything else.
func variableName(text string) string {
	name := strings.TrimPrefix(text, "$")
	for _, pair := range []string{"{}", "()"} {
		if len(name) > 1 && name[0] == pair[0] && name[len(name)-1] == pair[1] {
			name = name[1 : len(name)-1]
		}
	}
	if name == "" || name == text || nameLen(name) != len(name) {
		return ""
	}
	return name
}

// configRefused reports a config file that cannot be read here, with a remedy.
func configRefused(d *draft, s setting) {
	d.problem(Refused, s.at, "give the file itself: vapp import - < "+d.maskedValue(s)+", or --config - with the file on standard input",
		"%s: %s is not read", s.given, d.maskedValue(s))
}

// nearestKey returns the known key most similar to key, or "".
func nearestKey(key string, known []string) string { return nearest.Best(key, known) }
