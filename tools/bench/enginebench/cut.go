package enginebench

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"vapp.dev/appliance/plan"
	"vapp.dev/engine"
	"vapp.dev/engine/checkpoint"
	"vapp.dev/schema"
)

// cutConfig writes the config of the profile's model, reduced to its first o.Layers layers, to
// dir. The whole model need not fit the machine.
func (o Options) cutConfig(profile *schema.Profile, dir string) (path string, err error) {
	m, err := engine.Inspect(plan.Source(profile, ""))
	if err != nil {
		return "", err
	}
	path, err = cut(m.Config, o.Layers, dir)
	return path, errors.Join(err, m.Close())
}

// cut writes cfg, reduced to its first n layers, to dir.
func cut(cfg checkpoint.Config, n int, dir string) (path string, err error) {
	if cfg.Dialect != "huggingface" {
		return "", fmt.Errorf("bench: --layers cuts models that have a config.json; this one is a %s file", cfg.Dialect)
	}
	if n > cfg.NumLayers {
		return "", fmt.Errorf("bench: --layers %d: the model has %d", n, cfg.NumLayers)
	}
	var all map[string]json.RawMessage
	if err := json.Unmarshal(cfg.Raw, &all); err != nil {
		return "", err
	}
	if inner, ok := all["text_config"]; ok {
		var text map[string]json.RawMessage
		if err := json.Unmarshal(inner, &text); err != nil {
			return "", err
		}
		if err := cutLayers(text, n); err != nil {
			return "", err
		}
		if all["text_config"], err = json.Marshal(text); err != nil {
			return "", err
		}
	} else if err := cutLayers(all, n); err != nil {
		return "", err
	}
	out, err := json.MarshalIndent(all, "", "  ")
	if err != nil {
		return "", err
	}
	path = filepath.Join(dir, "config.json")
	return path, os.WriteFile(path, out, 0o600)
}

// cutLayers reduces the number of layers and the lists that have an entry per layer.
func cutLayers(m map[string]json.RawMessage, n int) (err error) {
	if m["num_hidden_layers"], err = json.Marshal(n); err != nil {
		return err
	}
	if raw, ok := m["max_window_layers"]; ok {
		var most int
		if json.Unmarshal(raw, &most) == nil && most > n {
			m["max_window_layers"] = m["num_hidden_layers"]
		}
	}
	if raw, ok := m["layer_types"]; ok {
		var types []string
		if err := json.Unmarshal(raw, &types); err != nil {
			return fmt.Errorf("bench: layer_types: %w", err)
		}
		m["layer_types"], err = json.Marshal(types[:min(n, len(types))])
	}
	return err
}
