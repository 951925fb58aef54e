package checkpoint

import (
	"encoding/json"
	"errors"
	"io/fs"
	"path/filepath"
	"strings"
)

// PoolingConfig holds the pooling settings from a checkpoint's Sentence Transformers files or from a
// GGUF file's metadata.
type PoolingConfig struct {
	Pooling   string // LAST, MEAN or CLS, as vLLM names them
	Normalize bool   // the modules normalize the result
	File      string // the file with these settings
}

// modulesFile lists the modules that process a text, in order.
const modulesFile = "modules.json"

// poolingModes maps the keys of a pooling module's config, and the values of its newer single key,
// to pooling modes.
var poolingModes = map[string]string{
	"pooling_mode_cls_token": "CLS", "pooling_mode_mean_tokens": "MEAN", "pooling_mode_lasttoken": "LAST",
	"cls": "CLS", "mean": "MEAN", "lasttoken": "LAST",
}

// PoolingConfig reads modules.json and the config of its pooling module; nil if there is none. It
// refuses other modules that change the result, such as a projection.
func (c *Checkpoint) PoolingConfig() (*PoolingConfig, error) {
	if c.cfg.Dialect == "gguf" {
		return c.ggufPooling()
	}
	file := filepath.Join(c.path, modulesFile)
	raw, err := readSmall(file, maxConfig)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var modules []struct {
		Path string `json:"path"`
		Type string `json:"type"`
	}
	if json.Unmarshal(raw, &modules) != nil || len(modules) > 64 {
		return nil, fault(file, "", "is not a list of at most 64 modules, each with a type and a path")
	}
	s := &PoolingConfig{File: modulesFile}
	for _, m := range modules {
		switch kind := m.Type[strings.LastIndexByte(m.Type, '.')+1:]; kind {
		case "Transformer":
		case "Normalize":
			s.Normalize = true
		case "Pooling":
			if s.Pooling != "" || !filepath.IsLocal(filepath.FromSlash(m.Path)) {
				return nil, fault(file, "path", "%s is not a subdirectory with the only pooling module", clip(m.Path))
			}
			if err := s.readPooling(c.path, m.Path); err != nil {
				return nil, err
			}
		default:
			return nil, fault(file, "type", "module %s is not supported: Transformer, Pooling and Normalize are", clip(m.Type))
		}
	}
	if s.Pooling == "" {
		return nil, nil
	}
	return s, nil
}

// readPooling reads the one mode of a pooling module.
func (s *PoolingConfig) readPooling(dir, module string) error {
	s.File = module + "/config.json"
	file := filepath.Join(dir, filepath.FromSlash(module), "config.json")
	raw, err := readSmall(file, maxConfig)
	if err != nil {
		return err
	}
	f, err := newFields(file, "", raw)
	if err != nil {
		return err
	}
	var modes []string
	if word := f.text("pooling_mode", ""); word != "" {
		modes = append(modes, word)
	}
	for key := range f.m {
		if strings.HasPrefix(key, "pooling_mode_") && f.flag(key, false) {
			modes = append(modes, key)
		}
	}
	if f.err != nil {
		return f.err
	}
	if len(modes) != 1 {
		return fault(file, "pooling_mode", "has %d pooling modes; exactly one is supported", len(modes))
	}
	if s.Pooling = poolingModes[modes[0]]; s.Pooling == "" {
		return fault(file, clip(modes[0]), "is not supported: cls_token, mean_tokens and lasttoken are")
	}
	return nil
}

// ggufPooling reads <architecture>.pooling_type, llama.cpp's numbers.
func (c *Checkpoint) ggufPooling() (*PoolingConfig, error) {
	var meta map[string]json.RawMessage
	if err := json.Unmarshal(c.cfg.Raw, &meta); err != nil {
		return nil, fault(c.path, "", "has metadata that is no object: %v", err)
	}
	var arch string
	if json.Unmarshal(meta["general.architecture"], &arch) != nil {
		return nil, nil
	}
	key := arch + ".pooling_type"
	switch string(meta[key]) {
	case "", "0":
		return nil, nil
	case "1":
		return &PoolingConfig{Pooling: "MEAN", Normalize: true, File: key}, nil
	case "2":
		return &PoolingConfig{Pooling: "CLS", Normalize: true, File: key}, nil
	case "3":
		return &PoolingConfig{Pooling: "LAST", Normalize: true, File: key}, nil
	}
	return nil, fault(c.path, key, "is %s, which is not supported: 0 to 3 are", clip(string(meta[key])))
}
