package importer

import (
	"vapp.dev/foreign"

	"regexp"
	"slices"
	"strconv"
	"strings"
)

// wantObject reports a value that is not a JSON object.
func (d *draft) wantObject(s setting) bool {
	if s.keys != nil {
		return true
	}
	if strings.Contains(s.value(), "'") {
		d.problem(Invalid, s.at, "JSON has double quotes, and the shell single ones around it", "%s: %s is no JSON object", s.given, d.maskedValue(s))
	} else {
		d.invalid(s, `a JSON object, such as {"key": 1}`)
	}
	return false
}

// entry returns one key of an object as a setting.
func (s setting) entry(key, value string) setting {
	return setting{flag: s.flag, given: s.flag.name() + "." + key, values: []word{{text: value, at: s.at}}, at: s.at}
}

// generation maps keys of a generation config to fields.
var generation = map[string]string{
	"temperature": "temperature", "top_p": "topP", "top_k": "topK", "min_p": "minP", "repetition_penalty": "repetitionPenalty",
	"max_new_tokens": "maxTokens", "max_tokens": "maxTokens",
}

// overrideGeneration converts the defaults of sampling.
func overrideGeneration(d *draft, s setting) {
	if !d.wantObject(s) {
		return
	}
	for _, key := range sortedKeys(s.keys) {
		v := compact(s.keys[key])
		one := s.entry(key, v)
		field, ok := generation[key]
		switch n, number := decimal(v); {
		case !ok:
			d.note(d.sourceText(one), no+"sampling has no such default")
		case s.keys[key] == nil:
		case !number:
			d.invalid(one, "a number")
		default:
			d.set("sampling."+field, n, one)
		}
	}
}

// templateKwargs converts variables of the chat template.
func templateKwargs(d *draft, s setting) {
	if !d.wantObject(s) {
		return
	}
	for _, key := range sortedKeys(s.keys) {
		v := compact(s.keys[key])
		one := s.entry(key, v)
		if !jinjaName.MatchString(key) {
			d.invalid(one, "a variable of Jinja: letters, digits and _, the first no digit")
			continue
		}
		d.set("parsers.chatTemplateKwargs."+key, cueOf(s.keys[key]), one)
	}
}

// jinjaName matches a variable name of a template.
var jinjaName = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)

// structuredOutputs converts the one key that does not only concern grammars.
func structuredOutputs(d *draft, s setting) {
	if !d.wantObject(s) {
		return
	}
	for _, key := range sortedKeys(s.keys) {
		one := s.entry(key, compact(s.keys[key]))
		if name, ok := s.keys[key].(string); ok && key == "reasoning_parser" {
			if name != "" {
				d.set("parsers.reasoning", quote(name), one)
			}
			continue
		}
		d.note(d.sourceText(one), foreign.Grammar)
	}
}

// specPart handles one key of a speculative config that was given as a flag. settleSpeculative
// combines the keys.
func specPart(key string) converter {
	return func(d *draft, s setting) {
		s.keys = map[string]any{key: s.value()}
		speculative(d, s)
	}
}

// speculative collects the keys of a speculative config.
func speculative(d *draft, s setting) {
	if !d.wantObject(s) {
		return
	}
	for _, key := range sortedKeys(s.keys) {
		given := s.given
		if s.flag.arity == object {
			given = s.flag.name() + "." + key
		}
		one := setting{flag: s.flag, given: given, values: []word{{text: compact(s.keys[key]), at: s.at}}, at: s.at}
		switch key {
		case "method", "model", "num_speculative_tokens", "prompt_lookup_min", "prompt_lookup_max":
			if s.keys[key] != nil {
				d.spec(key, one)
			}
		default:
			if near := nearestKey(key, []string{"method", "model", "num_speculative_tokens", "prompt_lookup_min", "prompt_lookup_max"}); near != "" && !slices.Contains(specKeys, key) {
				d.problem(Unknown, s.at, "did you mean "+near+"?", "%s: no such key of %s", short(key), s.flag.name())
				continue
			}
			d.note(d.sourceText(one), no+"speculative has method, numTokens, model and the bounds of prompt lookup")
		}
	}
	d.settleSpeculative()
}

// specKeys are the other keys of a speculative config.
var specKeys = []string{
	"draft_tensor_parallel_size", "quantization", "max_model_len", "revision", "code_revision", "disable_by_batch_size", "enforce_eager", "disable_padded_drafter_batch", "speculative_token_tree", "rejection_sample_method", "draft_sample_method",
	"suffix_decoding_max_tree_depth", "suffix_decoding_max_cached_requests", "suffix_decoding_max_spec_factor", "suffix_decoding_min_token_prob",
	"parallel_drafting", "use_local_argmax_reduction", "acceptance_method", "moe_backend", "attention_backend", "tensor_parallel_size",
}

// spec keeps a key under a name that is no field, until all keys are known.
func (d *draft) spec(key string, s setting) { d.fields["?"+key] = field{by: s} }

// settleSpeculative sets the fields that follow from the keys known so far.
func (d *draft) settleSpeculative() {
	method, model, n := d.fields["?method"].by, d.fields["?model"].by, d.fields["?num_speculative_tokens"].by
	for _, f := range []string{"method", "numTokens", "model", "promptLookupMin", "promptLookupMax"} {
		delete(d.fields, "speculative."+f)
	}
	name := specMethod(strings.ToLower(method.value()), strings.ToLower(model.value()))
	switch {
	case name == "":
		return
	case strings.Contains(name, " "):
		return // finishSpeculative reports it
	}
	by := method
	if by.given == "" {
		by = model
	}
	d.set("speculative.method", quote(name), by)
	if model.value() != "" && name != "ngram" && !strings.HasPrefix(model.value(), "[") {
		d.set("speculative.model", quote(model.value()), model)
	}
	d.count("speculative.numTokens", n)
	if name == "ngram" {
		d.count("speculative.promptLookupMin", d.fields["?prompt_lookup_min"].by)
		d.count("speculative.promptLookupMax", d.fields["?prompt_lookup_max"].by)
	}
}

// count sets a number of tokens; the schema refuses an invalid one and lists what is allowed.
func (d *draft) count(path string, s setting) {
	if num, err := strconv.Atoi(s.value()); err == nil {
		d.set(path, strconv.Itoa(num), s)
	} else if s.given != "" {
		d.set(path, "0", s)
	}
}

// specMethod maps vLLM's method to vapp's; "" where none is given; a result with spaces is the
// reason why it is refused.
func specMethod(method, model string) string {
	switch {
	case method == "ngram" || method == "[ngram]" || model == "ngram" || model == "[ngram]" || method == "ngram_gpu":
		return "ngram"
	case method == "mtp" || strings.HasSuffix(method, "_mtp"):
		return "mtp"
	case method == "draft_model":
		return "draft_model"
	case method == "" && model == "":
		return ""
	case method == "" && !strings.Contains(model, "eagle") && !strings.Contains(model, "medusa") && !strings.Contains(model, "speculator"):
		return "draft_model"
	}
	return no + "vapp proposes by ngram, draft_model or mtp"
}

// finishSpeculative reports missing or unsupported keys.
func (d *draft) finishSpeculative() {
	method, model, n := d.fields["?method"].by, d.fields["?model"].by, d.fields["?num_speculative_tokens"].by
	bounds := []setting{d.fields["?prompt_lookup_min"].by, d.fields["?prompt_lookup_max"].by}
	for _, key := range []string{"?method", "?model", "?num_speculative_tokens", "?prompt_lookup_min", "?prompt_lookup_max"} {
		delete(d.fields, key)
	}
	if specMethod(strings.ToLower(method.value()), strings.ToLower(model.value())) != "ngram" {
		for _, s := range bounds {
			if s.given != "" {
				d.notef(s, "%s", no+"of method ngram alone")
			}
		}
	}
	if method.given == "" && model.given == "" && n.given == "" {
		return
	}
	switch name := specMethod(strings.ToLower(method.value()), strings.ToLower(model.value())); {
	case name == "":
		d.problem(Missing, n.at, `add the method, such as {"method": "ngram"}, or the draft model`, "%s: nothing says how tokens are proposed", n.given)
	case strings.Contains(name, " "):
		for _, s := range []setting{method, model, n} {
			if s.given != "" {
				d.notef(s, "%s", name)
			}
		}
	case n.given == "":
		d.problem(Missing, d.fields["speculative.method"].by.at, "add num_speculative_tokens; vLLM takes it from the model's config", "%s: nothing says how many tokens are proposed", d.fields["speculative.method"].by.given)
	}
}
