package hub

import (
	"encoding/json"
	"errors"
	"path/filepath"
	"slices"
	"strings"

	"vapp.dev/filekind"
)

// Want describes the use of a model.
type Want struct {
	// Format is model.loadFormat: auto, safetensors, gguf, or dummy, which needs no weights.
	Format string
}

// picked are the files of a model that serving reads.
type picked struct {
	small   []File // config, tokenizer, template, generation config, index
	weights []File
	gguf    bool // weights is one GGUF model, which has everything; a split one has several files
}

// path returns the path that the engine loads from a snapshot.
func (p picked) path(dir string) string {
	if p.gguf {
		return filepath.Join(dir, filepath.FromSlash(p.weights[0].Path))
	}
	return dir
}

func (p picked) files() []File { return append(slices.Clone(p.small), p.weights...) }

// Files of a model's folder that are read besides weights.
const (
	configFile    = "config.json"
	tokenizerFile = "tokenizer.json"
	tiktokenFile  = "tiktoken.model" // of Kimi and Moonlight, in the place of tokenizerFile
	indexFile     = "model.safetensors.index.json"
	singleFile    = "model.safetensors"
)

var optionalFiles = []string{"tokenizer_config.json", "generation_config.json", "chat_template.jinja", "modules.json", "1_Pooling/config.json", "processor_config.json", "preprocessor_config.json"}

// maxIndex bounds the size of the index of safetensors files.
const maxIndex = 64 << 20

// pick chooses from the files of a repository. readIndex reads the safetensors index, which lists
// the weight files. The error is an *Error.
func pick(n Name, w Want, list []File, readIndex func(File) ([]byte, error)) (picked, error) {
	by := map[string]File{}
	var gguf []File
	for _, f := range list {
		by[f.Path] = f
		if isGGUF(f.Path) {
			gguf = append(gguf, f)
		}
	}
	_, single := by[singleFile]
	index, sharded := by[indexFile]
	switch {
	case n.File != "":
		if _, ok := by[n.File]; !ok {
			return picked{}, n.errorf(NoFile, "it has no file %s%s", n.File, nameList("; its GGUF files: ", gguf))
		}
		return wholeGGUF(n, n.File, by)
	case w.Format == "gguf" || w.Format != "safetensors" && w.Format != "dummy" && !single && !sharded && len(gguf) > 0:
		return oneGGUF(n, gguf, by)
	}
	p := picked{}
	tokenizer := tokenizerFile
	if _, ok := by[tokenizerFile]; !ok && by[tiktokenFile].Path != "" {
		tokenizer = tiktokenFile
	}
	for _, name := range []string{configFile, tokenizer} {
		f, ok := by[name]
		if !ok {
			return p, n.errorf(Unsuitable, "it has no %s, which is needed%s", name, pickles(list))
		}
		p.small = append(p.small, f)
	}
	for _, name := range optionalFiles {
		if f, ok := by[name]; ok {
			p.small = append(p.small, f)
		}
	}
	switch {
	case w.Format == "dummy":
	case single:
		p.weights = []File{by[singleFile]}
	case sharded:
		p.small = append(p.small, index)
		text, err := readIndex(index)
		if err != nil {
			var known *Error
			if errors.As(err, &known) {
				return p, err
			}
			return p, n.errorf(Unsuitable, "%s: %v", indexFile, err)
		}
		shards, err := parseIndex(text)
		if err != nil {
			return p, n.errorf(Unsuitable, "%s: %v", indexFile, err)
		}
		for _, name := range shards {
			f, ok := by[name]
			if !ok {
				return p, n.errorf(Unsuitable, "its index names %.80q, which is not among its files", name)
			}
			p.weights = append(p.weights, f)
		}
	default:
		return p, n.errorf(Unsuitable, "it has neither safetensors nor GGUF files%s", pickles(list))
	}
	return p, nil
}

// oneGGUF returns the only GGUF model; it fails where there are several, because the profile must
// name one.
func oneGGUF(n Name, gguf []File, by map[string]File) (picked, error) {
	var names []string
	for _, f := range gguf {
		names = append(names, f.Path)
	}
	var models []File
	for _, name := range filekind.WholeGGUFs(names) {
		models = append(models, by[name])
	}
	switch len(models) {
	case 0:
		return picked{}, n.errorf(Unsuitable, "it has no GGUF file")
	case 1:
		return wholeGGUF(n, models[0].Path, by)
	}
	return picked{}, n.errorf(Unsuitable, "it has %d GGUF files: name one, as %s:%s%s", len(models), n.Repo, models[0].Path, nameList("; there are ", models))
}

// wholeGGUF returns all files of the model with this file, which must be the first of a split one.
func wholeGGUF(n Name, file string, by map[string]File) (picked, error) {
	_, index, count, split := filekind.SplitGGUF(file)
	if !split {
		return picked{gguf: true, weights: []File{by[file]}}, nil
	}
	if count > maxFiles {
		return picked{}, n.errorf(Unsuitable, "%s is one of %d files, more than the limit of %d", file, count, maxFiles)
	}
	p := picked{gguf: true}
	for i := range count {
		name := filekind.NthGGUF(file, i+1)
		f, ok := by[name]
		if !ok {
			return picked{}, n.errorf(NoFile, "it has no file %s, which belongs to %s", name, file)
		}
		p.weights = append(p.weights, f)
	}
	if index != 1 {
		return picked{}, n.errorf(Unsuitable, "%s is file %d of a model of %d files; name the first, %s", file, index, count, p.weights[0].Path)
	}
	return p, nil
}

// maxListed bounds the files that an error names.
const maxListed = 12

func nameList(lead string, files []File) string {
	if len(files) == 0 {
		return ""
	}
	var names []string
	for _, f := range files {
		if len(names) == maxListed {
			names = append(names, "…")
			break
		}
		names = append(names, f.Path)
	}
	return lead + strings.Join(names, ", ")
}

// pickles returns a note about weight files in unsupported formats, "" where there are none.
func pickles(list []File) string {
	for _, f := range list {
		if ext := filepath.Ext(f.Path); ext == ".bin" || ext == ".pth" || ext == ".pt" || ext == ".h5" || ext == ".msgpack" {
			return "; files such as " + f.Path + " are not read: ask for a conversion to safetensors"
		}
	}
	return ""
}

// parseIndex returns the files that an index names, sorted.
func parseIndex(text []byte) ([]string, error) {
	var index struct {
		Weights map[string]string `json:"weight_map"`
	}
	if err := json.Unmarshal(text, &index); err != nil {
		return nil, err
	}
	names := map[string]bool{}
	for _, file := range index.Weights {
		if !localName(file) || !strings.HasSuffix(file, ".safetensors") {
			return nil, errors.New("it names a file that is not a safetensors file of the repository")
		}
		names[file] = true
	}
	if len(names) == 0 || len(names) > maxFiles {
		return nil, errors.New("it names no files")
	}
	var out []string
	for name := range names {
		out = append(out, name)
	}
	slices.Sort(out)
	return out, nil
}
