package importer

import (
	"encoding/json"
	"strconv"
	"strings"
)

// adapters keeps a LoRA setting until all of them are known.
func adapters(key string) converter {
	return func(d *draft, s setting) { d.fields["?"+key] = field{by: s} }
}

// runtimeAdapters converts VLLM_ALLOW_RUNTIME_LORA_UPDATING, which vLLM reads as 1 or true.
func runtimeAdapters(d *draft, _ variable, s setting) {
	if on := strings.ToLower(strings.TrimSpace(s.value())); on == "1" || on == "true" {
		d.fields["?updating"] = field{by: s}
	}
}

// settleAdapters sets the LoRA fields. Without --enable-lora vLLM ignores the numbers. Its defaults
// are the schema's: one adapter of rank 16.
func (d *draft) settleAdapters() {
	take := func(key string) setting {
		s := d.fields[key].by
		delete(d.fields, key)
		return s
	}
	remarks := d.fields["?modules"].remarks
	on, n, rank, modules, updating := take("?enable"), take("?maxLoras"), take("?maxRank"), take("?modules"), take("?updating")
	if !on.on {
		for _, s := range []setting{n, rank, modules, updating} {
			if s.given != "" {
				d.notef(s, "without effect without --enable-lora")
			}
		}
		return
	}
	d.set("lora.maxLoras", "1", on)
	if n.given != "" {
		integer("lora.maxLoras")(d, n)
	}
	if rank.given != "" {
		integer("lora.maxRank")(d, rank)
	}
	if updating.given != "" {
		d.set("lora.allowRuntimeUpdating", "true", updating)
	}
	d.adapterModules(modules, remarks)
}

// adapterModules converts --lora-modules. It raises lora.maxLoras to the number of modules; remarks are
// written above the field.
func (d *draft) adapterModules(s setting, remarks []string) {
	var list []string
	for _, w := range s.values {
		m, ok := loraModule(w.text)
		switch {
		case w.missing != "":
			d.unresolved(w, s.given)
			continue
		case w.text == "": // vLLM skips it too
			continue
		case !ok:
			d.problem(Invalid, w.at, `allowed: NAME=PATH, or a JSON object such as {"name": "sql", "path": "/adapters/sql"}`, "%s: invalid value %q", s.given, short(w.text))
			continue
		}
		if m.Base != "" && m.Base != d.fields["model.source"].by.value() {
			d.note(s.given+" "+m.Name+".base_model_name "+short(m.Base), no+"/v1/models shows the first served name as the parent of every adapter")
		}
		if m.Stacked {
			d.note(s.given+" "+m.Name+".is_3d_lora_weight", no+"the adapter's own tensors say their shape")
		}
		list = append(list, quote(m.Name)+": "+quote(m.Path))
	}
	if len(list) == 0 {
		return
	}
	d.set("lora.adapters", "{"+strings.Join(list, ", ")+"}", s, remarks...)
	if f := d.fields["lora.maxLoras"]; f.cue != "" {
		if n, err := strconv.Atoi(f.cue); err == nil && n < len(list) {
			d.set("lora.maxLoras", strconv.Itoa(len(list)), s, "vLLM's "+strconv.Itoa(n)+" is for one step; here every loaded adapter has a slot.")
		}
	}
}

// module is a value of --lora-modules.
type module struct {
	Name    string `json:"name"`
	Path    string `json:"path"`
	Base    string `json:"base_model_name"`
	Stacked bool   `json:"is_3d_lora_weight"`
}

// loraModule returns a value of --lora-modules: NAME=PATH without a comma, else a JSON object.
func loraModule(text string) (m module, ok bool) {
	if name, path, pair := strings.Cut(text, "="); pair && !strings.Contains(text, ",") {
		m = module{Name: name, Path: path}
	} else {
		d := json.NewDecoder(strings.NewReader(text))
		d.DisallowUnknownFields()
		if d.Decode(&m) != nil || d.More() {
			return m, false
		}
	}
	return m, m.Name != "" && m.Path != ""
}
