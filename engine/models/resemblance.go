package models

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"vapp.dev/engine/checkpoint"
)

// leastAlike is the share of equal field and tensor names below which two models are not called
// similar.
const leastAlike = 0.5

// sameName is added to the share if the model_type begins with the known one (qwen3_moe, qwen3).
const sameName = 0.1

// resemblance returns which family an unknown architecture resembles most and what differs, as a part
// of an error: "; its config resembles Qwen3ForCausalLM most: …". It compares the names of the
// config's fields with those of the published configs in the catalogue, and the names of the
// checkpoint's tensors, if there are any, with those that such a config implies. It returns "" if no
// family is similar.
func resemblance(cfg checkpoint.Config, tensors []checkpoint.TensorInfo) string {
	fields, parts := fieldNames(cfg.Raw), tensorParts(tensors)
	entries, err := Catalogue()
	if err != nil || cfg.Dialect != "huggingface" {
		return ""
	}
	best, at := leastAlike, ""
	var its, itsParts map[string]bool
	seen := map[string]bool{}
	for _, e := range entries {
		known, err := e.Config()
		if err != nil || seen[e.File] {
			continue
		}
		seen[e.File] = true
		i := slices.IndexFunc(families, func(f family) bool { return f.architecture == known.Architecture })
		if i < 0 {
			continue
		}
		names, implied := fieldNames(known.Raw), map[string]bool(nil)
		score := alike(fields, names)
		if len(parts) > 0 {
			implied = tensorParts(families[i].tensors(known))
			score = (score + alike(parts, implied)) / 2
		}
		if strings.HasPrefix(cfg.ModelType, known.ModelType) {
			score += sameName
		}
		if score > best {
			best, at, its, itsParts = score, known.Architecture, names, implied
		}
	}
	if at == "" {
		return ""
	}
	out := []string{fmt.Sprintf("; its config resembles %s most", at)}
	out = append(out, difference("adds the fields", fields, its), difference("lacks the fields", its, fields))
	if len(parts) > 0 {
		out = append(out, difference("adds the tensors", parts, itsParts), difference("lacks the tensors", itsParts, parts))
	}
	return strings.Join(slices.DeleteFunc(out, func(s string) bool { return s == "" }), "; it ")
}

// alike returns how many names two sets share, as a part of all their names.
func alike(a, b map[string]bool) float64 {
	shared := 0
	for k := range a {
		if b[k] {
			shared++
		}
	}
	return float64(shared) / float64(max(1, len(a)+len(b)-shared))
}

// difference lists the first few names of a that b lacks, "" if there are none.
func difference(what string, a, b map[string]bool) string {
	const show = 6
	var list []string
	for _, k := range slices.Sorted(maps.Keys(a)) {
		if !b[k] {
			list = append(list, k)
		}
	}
	if len(list) == 0 {
		return ""
	}
	text := what + " " + strings.Join(list[:min(len(list), show)], ", ")
	if n := len(list) - show; n > 0 {
		text += fmt.Sprintf(" and %d more", n)
	}
	return text
}

// unrelated are fields that say nothing about a forward pass.
var unrelated = strings.Fields(`architectures model_type auto_map transformers_version torch_dtype dtype bos_token_id eos_token_id
	pad_token_id use_cache initializer_range attention_dropout hidden_dropout pretraining_tp quantization_config output_router_logits`)

// fieldNames returns the fields of a config that are not null, those of text_config in place of the
// outer ones.
func fieldNames(raw json.RawMessage) map[string]bool {
	var outer, inner map[string]json.RawMessage
	if json.Unmarshal(raw, &outer) != nil {
		return nil
	}
	if json.Unmarshal(outer["text_config"], &inner) == nil && inner != nil {
		outer = inner
	}
	out := map[string]bool{}
	for k, v := range outer {
		if string(v) != "null" && k[:min(1, len(k))] != "_" && !slices.Contains(unrelated, k) {
			out[k] = true
		}
	}
	return out
}

// tensorParts returns the names of tensors with N in place of numbers and without prefix.
func tensorParts(list []checkpoint.TensorInfo) map[string]bool {
	out := map[string]bool{}
	for _, t := range list {
		parts := strings.Split(t.Name, ".")
		for i, p := range parts {
			if strings.Trim(p, "0123456789") == "" {
				parts[i] = "N"
			}
		}
		out[strings.TrimPrefix(strings.TrimPrefix(strings.Join(parts, "."), "model."), "language_model.")] = true
	}
	return out
}
