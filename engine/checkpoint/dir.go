package checkpoint

import (
	"encoding/json"
	"errors"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// Maximum sizes of the text files in a directory, in bytes.
const (
	maxConfig    = 16 << 20
	maxIndex     = 64 << 20
	maxTokenizer = 256 << 20
	maxShards    = 4096
)

// openDir reads a Hugging Face directory.
func (c *Checkpoint) openDir(weights bool, e Edits) error {
	path := filepath.Join(c.path, "config.json")
	raw, err := readSmall(path, maxConfig)
	if errors.Is(err, fs.ErrNotExist) {
		return NoModel(c.path)
	}
	if err != nil {
		return err
	}
	if c.cfg, err = e.Parse(path, raw); err != nil {
		if e := misplaced(path, raw); e != nil {
			return e
		}
		return err
	}
	if err = c.openShards(weights); err != nil {
		return err
	}
	c.addMissingPrefix()
	if err = c.join(); err != nil {
		return err
	}
	c.text, err = dirText(c.path, c.cfg)
	return err
}

// addMissingPrefix renames the tensors of a checkpoint that was saved as a bare model (Qwen3Model,
// embedding models) to the names they have in a model with a head.
func (c *Checkpoint) addMissingPrefix() {
	const prefix = "model."
	bare := false
	for _, name := range []string{"embed_tokens.weight", "language_model.embed_tokens.weight"} {
		_, ok := c.byName[name]
		bare = bare || ok
	}
	if !bare {
		return
	}
	c.byName = map[string]int{}
	for i := range c.tensors {
		t := &c.tensors[i]
		if t.Name != "lm_head.weight" && t.Name != "score.weight" {
			t.Name = prefix + t.Name
		}
		c.byName[t.Name] = i
	}
}

// openShards maps model.safetensors, or the shards listed in its index.
func (c *Checkpoint) openShards(weights bool) error {
	single := filepath.Join(c.path, "model.safetensors")
	if _, err := os.Stat(single); err == nil {
		return c.openShard(single)
	}
	index := single + ".index.json"
	raw, err := readSmall(index, maxIndex)
	if errors.Is(err, fs.ErrNotExist) {
		if !weights {
			return nil
		}
		note, err := Weightless(c.path)
		if err == nil && note == "" {
			note = "holds neither model.safetensors nor model.safetensors.index.json"
		}
		if err == nil {
			err = fault(c.path, "", "%s", note)
		}
		return err
	}
	if err != nil {
		return err
	}
	where, err := parseIndex(index, raw)
	if err != nil {
		return err
	}
	files := slices.Sorted(maps.Values(where))
	for _, name := range slices.Compact(files) {
		if err := c.openShard(filepath.Join(c.path, name)); err != nil {
			return err
		}
	}
	for _, name := range slices.Sorted(maps.Keys(where)) {
		t, ok := c.Tensor(name)
		if !ok || filepath.Base(t.File) != where[name] {
			return fault(index, name, "is not in %s, where the index puts it", where[name])
		}
	}
	return nil
}

// parseIndex returns the shard of every tensor name.
func parseIndex(path string, raw []byte) (map[string]string, error) {
	var index struct {
		WeightMap map[string]string `json:"weight_map"`
	}
	if err := json.Unmarshal(raw, &index); err != nil {
		return nil, fault(path, "weight_map", "is not a map of names to files: %s", jsonCause(err))
	}
	if len(index.WeightMap) == 0 {
		return nil, fault(path, "weight_map", "is missing or empty")
	}
	shards := map[string]bool{}
	for _, tensor := range slices.Sorted(maps.Keys(index.WeightMap)) {
		name := index.WeightMap[tensor]
		if name != filepath.Base(name) || strings.ContainsAny(name, `/\`) || name == "." || name == ".." || clip(name) != name {
			return nil, fault(path, tensor, "names %s, which is no file of this directory", clip(name))
		}
		shards[name] = true
	}
	if len(shards) > maxShards {
		return nil, fault(path, "weight_map", "names %d files, more than the limit of %d", len(shards), maxShards)
	}
	return index.WeightMap, nil
}

func (c *Checkpoint) openShard(path string) error {
	f, err := openFile(path)
	if err != nil {
		return err
	}
	c.files[path] = f
	return catchFault(path, func() error {
		list, err := parseSafetensors(path, f.data)
		if err != nil {
			return err
		}
		for _, t := range list {
			if err := c.add(t); err != nil {
				return err
			}
		}
		return nil
	})
}
