package checkpoint

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// splitToy returns the three files of a split toy: metadata alone, the embedding, the norm.
func splitToy() []*toy {
	whole := newToy("smollm")
	parts := []*toy{whole, {magic: whole.magic, version: 3}, {magic: whole.magic, version: 3}}
	for i, m := range parts {
		m.set("split.no", uint32(i)).set("split.count", uint32(3)).set("split.tensors.count", uint32(2))
	}
	for i, x := range whole.tensors {
		x.offset = 0
		parts[i+1].tensors = []entry{x}
	}
	parts[1].data, parts[2].data = 8*toyVocab*4, 32
	whole.tensors, whole.data = nil, 0
	return parts
}

// writeSplit writes the files into a new folder and returns the path of the first.
func writeSplit(t *testing.T, parts []*toy) string {
	t.Helper()
	dir := t.TempDir()
	for i, m := range parts {
		name := []string{"toy-00001-of-00003.gguf", "toy-00002-of-00003.gguf", "toy-00003-of-00003.gguf"}[i]
		if err := os.WriteFile(filepath.Join(dir, name), m.bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return filepath.Join(dir, "toy-00001-of-00003.gguf")
}

func TestSplitGGUF(t *testing.T) {
	path := writeSplit(t, splitToy())
	c, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if x, ok := c.Tensor("model.norm.weight"); !ok || filepath.Base(x.File) != "toy-00003-of-00003.gguf" {
		t.Errorf("%+v", x)
	}
	if err := c.ReadRows("model.embed_tokens.weight", 0, toyVocab, make([]byte, 8*toyVocab*4)); err != nil {
		t.Error(err)
	}
	if _, err := c.View("model.norm.weight"); err != nil || len(c.Tensors()) != 2 {
		t.Errorf("%v, %+v", err, c.Tensors())
	}
	before, err := c.Fingerprint()
	if err != nil {
		t.Fatal(err)
	}
	parts := splitToy()
	parts[2].data += 8 // another last file
	other, err := Open(writeSplit(t, parts))
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	if after, err := other.Fingerprint(); err != nil || after == before {
		t.Errorf("the fingerprint misses the last file: %v", err)
	}
}

func TestBadSplitGGUF(t *testing.T) {
	for name, c := range map[string]struct {
		file, field, says string
		spoil             func(parts []*toy)
	}{
		"count of another":   {"2", "split.count", "is 4, that of the first file is 3", func(p []*toy) { p[1].set("split.count", uint32(4)) }},
		"number of another":  {"2", "split.no", "is 2, by its name it is 1", func(p []*toy) { p[1].set("split.no", uint32(2)) }},
		"tensors of another": {"3", "split.tensors.count", "a file of another model", func(p []*toy) { p[2].set("split.tensors.count", uint32(3)) }},
		"architecture":       {"3", "general.architecture", "is qwen2, that of the first file is llama", func(p []*toy) { p[2].set("general.architecture", "qwen2") }},
		"no keys":            {"2", "split.count", "is 0", func(p []*toy) { p[1].pairs = nil }},
		"tensor twice":       {"3", "model.embed_tokens.weight", "is also in toy-00002-of-00003.gguf", func(p []*toy) { p[2].tensors, p[2].data = p[1].tensors, p[1].data }},
		"too few tensors": {"1", "split.tensors.count", "is 5, the 3 files have 2 tensors", func(p []*toy) {
			for _, m := range p {
				m.set("split.tensors.count", uint32(5))
			}
		}},
		"factors in a later file": {"3", "rope_freqs.weight", "not 2 f32 factors", func(p []*toy) {
			p[2].tensors, p[2].data = append(p[2].tensors, entry{"rope_freqs.weight", []uint64{3}, 0, 32}), 64
			for _, m := range p {
				m.set("split.tensors.count", uint32(3))
			}
		}},
		"cut": {"3", "output_norm.weight", "the file has", func(p []*toy) { p[2].data -= 8 }},
	} {
		t.Run(name, func(t *testing.T) {
			parts := splitToy()
			c.spoil(parts)
			path := writeSplit(t, parts)
			_, err := Open(path)
			wantError(t, err, strings.Replace(path, "-00001-", "-0000"+c.file+"-", 1), c.field)
			if err != nil && !strings.Contains(err.Error(), c.says) {
				t.Errorf("%v, want %q", err, c.says)
			}
		})
	}
	path := writeSplit(t, splitToy())
	second := strings.Replace(path, "-00001-", "-00002-", 1)
	if _, err := Open(second); err == nil || !strings.Contains(err.Error(), "is file 2 of a model of 3 files; name the first, toy-00001-of-00003.gguf") {
		t.Errorf("the second file: %v", err)
	}
	if err := os.Remove(second); err != nil {
		t.Fatal(err)
	}
	_, err := Open(path)
	if wantErrorType(t, err); !errors.Is(err, fs.ErrNotExist) || !strings.Contains(err.Error(), "toy-00002-of-00003.gguf: no such file") ||
		!strings.Contains(err.Error(), "it belongs to toy-00001-of-00003.gguf, fetch all files of the model") {
		t.Errorf("a missing file: %v", err)
	}
}
