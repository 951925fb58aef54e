package checkpoint

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"vapp.dev/filekind"
)

// Parts of the errors about files that are no models.
const (
	wanted  = "want a GGUF file or a folder with safetensors"
	damaged = "it is cut off or damaged; fetch it again"
)

// foreign returns the error for a file, whose bytes are data, in place of a model.
func foreign(path string, data []byte) *Error {
	kind := filekind.Of(data[:min(len(data), filekind.HeadBytes)])
	is, remedy := kind.Begins(), wanted
	switch dir := filepath.Dir(path); kind {
	case filekind.Safetensors:
		remedy = "give its folder, " + dir + ", which needs config.json and tokenizer.json too"
	case filekind.JSON:
		if isOneOf(filepath.Base(path), "config.json", "tokenizer.json", "tokenizer_config.json", "generation_config.json", "model.safetensors.index.json") {
			remedy = "give its folder, " + dir
		}
	case filekind.LFS:
		remedy = "run `git lfs pull` in its folder, or `vapp pull ORG/NAME`"
	case filekind.HTML:
		remedy = "fetch the file itself: on a hub its address has /resolve/ where that of the page has /blob/"
	case filekind.Zeros:
		remedy = "fetch it again"
	case filekind.GGML:
		remedy = "fetch a GGUF file, or convert it with llama.cpp"
	case filekind.Torch, filekind.Pickle:
		is += ", which can run code and is not read"
	}
	return fault(path, "", "%s; %s", is, remedy)
}

// misplaced returns the error of foreign where the kind of the file explains why it is not
// safetensors or JSON; else nil.
func misplaced(path string, data []byte) *Error {
	switch kind := filekind.Of(data[:min(len(data), filekind.HeadBytes)]); {
	case kind == filekind.Safetensors, kind == filekind.JSON, kind == filekind.Empty, kind == filekind.GGUF, !kind.Known():
		return nil
	}
	return foreign(path, data)
}

func isOneOf(name string, list ...string) bool { return slices.Contains(list, name) }

// maxListed bounds how many entries of a folder are read, and maxNamed how many are named in an
// error.
const (
	maxListed = 10_000
	maxNamed  = 8
)

// contents are the entries of a folder that could be a model or a part of one.
type contents struct {
	dir        string
	ggufs      []string // GGUF models; of a split one the first file
	config     bool     // config.json
	tokenizer  bool
	whole      bool     // model.safetensors or its index
	shards     []string // other *.safetensors
	others     []string // weights that are not read
	adapter    bool     // adapter_config.json
	pipeline   bool     // model_index.json
	snapshots  string   // a snapshot in a folder of the hub's cache
	subfolders []string // folders with a model
	n          int
}

// contentsOf lists a folder.
func contentsOf(dir string) contents {
	c := contents{dir: dir}
	f, err := os.Open(dir)
	if err != nil {
		return c
	}
	defer f.Close()
	names, _ := f.Readdirnames(maxListed) // a folder that cannot be read has none
	slices.Sort(names)
	c.n = len(names)
	for _, name := range names {
		c.see(name)
	}
	c.ggufs = filekind.WholeGGUFs(c.ggufs)
	return c
}

// see adds an entry.
func (c *contents) see(name string) {
	lower := strings.ToLower(name)
	ext := filepath.Ext(lower)
	switch {
	case ext == ".gguf":
		c.ggufs = append(c.ggufs, name)
	case name == "config.json":
		c.config = true
	case isOneOf(name, "tokenizer.json", "tokenizer.model", tiktokenFile, "vocab.json"):
		c.tokenizer = true
	case isOneOf(name, "model.safetensors", "model.safetensors.index.json"):
		c.whole = true
	case name == "adapter_config.json":
		c.adapter = true
	case name == "model_index.json":
		c.pipeline = true
	case ext == ".safetensors":
		c.shards = append(c.shards, name)
	case isOneOf(ext, ".pt", ".pth", ".ckpt", ".onnx", ".h5", ".msgpack", ".nemo", ".tflite", ".mlmodel", ".npz"), ext == ".bin" && !strings.HasSuffix(lower, "_args.bin"):
		c.others = append(c.others, name)
	case name == "snapshots":
		c.snapshots = firstFolder(filepath.Join(c.dir, name))
	case len(c.subfolders) < maxNamed && isModelFolder(filepath.Join(c.dir, name)):
		c.subfolders = append(c.subfolders, name)
	}
}

func firstFolder(dir string) string {
	list, _ := os.ReadDir(dir)
	for _, e := range list {
		if e.IsDir() {
			return filepath.Join(dir, e.Name())
		}
	}
	return ""
}

func isModelFolder(dir string) bool {
	_, err := os.Stat(filepath.Join(dir, "config.json"))
	return err == nil
}

// named lists names below the folder, as a user types them.
func (c contents) named(list []string) string {
	shown := make([]string, 0, maxNamed)
	for _, name := range list[:min(len(list), maxNamed)] {
		shown = append(shown, clip(filepath.Join(c.dir, name)))
	}
	text := strings.Join(shown, ", ")
	if more := len(list) - maxNamed; more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}

// bare lists names without the folder.
func bare(list []string) string {
	text := make([]string, 0, 3)
	for _, name := range list[:min(len(list), 3)] {
		text = append(text, clip(name))
	}
	if len(list) > 3 {
		return strings.Join(text, ", ") + fmt.Sprintf(" and %d more", len(list)-3)
	}
	return strings.Join(text, ", ")
}

// gguf returns what to give in place of a folder with GGUF models; "" if it has none.
func (c contents) gguf() string {
	switch {
	case len(c.ggufs) > 1:
		return fmt.Sprintf("holds %d GGUF models; give one of them: %s", len(c.ggufs), c.named(c.ggufs))
	case len(c.ggufs) == 1:
		return "holds a GGUF model; give the file: " + c.named(c.ggufs)
	}
	return ""
}

// weights returns why the folder's weights are not read; "" if it has none.
func (c contents) weights() string {
	switch {
	case len(c.shards) > 0:
		return fmt.Sprintf("holds %s, and no model.safetensors.index.json, which lists the parts; fetch it too, or name a single file model.safetensors", bare(c.shards))
	case len(c.others) > 0:
		verb := "is"
		if len(c.others) > 1 {
			verb = "are"
		}
		return fmt.Sprintf("holds %s, which %s not read; %s", bare(c.others), verb, wanted)
	}
	return ""
}

// NoModel returns the error for a folder without config.json.
func NoModel(dir string) error {
	c := contentsOf(dir)
	said := ""
	switch {
	case c.gguf() != "":
		said = c.gguf()
	case c.snapshots != "":
		said = "is a folder of the hub's cache; give ORG/NAME, or its snapshot: " + clip(c.snapshots)
	case c.adapter:
		said = "holds a LoRA adapter (adapter_config.json), not a model; give the folder of its base model"
	case c.pipeline:
		said = "holds a pipeline of diffusers (model_index.json), which is not served; " + wanted
	case len(c.subfolders) > 0:
		said = "has no config.json, but folders with one; give one of them: " + c.named(c.subfolders)
	case c.whole || len(c.shards) > 0:
		said = "holds safetensors and no config.json, which describes the model; fetch config.json and tokenizer.json too"
	case len(c.others) > 0:
		said = c.weights()
	case c.tokenizer:
		said = "holds a tokenizer and no config.json and no weights; " + wanted
	case c.n == 0:
		said = "is an empty folder; " + wanted
	default:
		said = "holds no model: no config.json, no *.safetensors, no *.gguf; " + wanted
	}
	return fault(dir, "", "%s", said)
}

// Weightless returns what a folder with a config.json has in place of the safetensors that are read:
// an error if it holds GGUF models, which the config does not describe, and a note about other
// weights, "" without any.
func Weightless(dir string) (note string, err error) {
	c := contentsOf(dir)
	if said := c.gguf(); said != "" {
		return "", fault(dir, "", "%s", said)
	}
	return c.weights(), nil
}
