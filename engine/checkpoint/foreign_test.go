package checkpoint

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestForeignFile opens files that are no models; DIR is their folder.
func TestForeignFile(t *testing.T) {
	torch := "PK\x03\x04" + strings.Repeat("\x00", 22) + "\x10\x00\x00\x00archive/data.pkl"
	gguf := newToy("smollm").bytes()
	for name, c := range map[string]struct{ text, want string }{
		"a.zip":             {"PK\x03\x04\x14\x00", `starts with "PK": a zip archive; want a GGUF file or a folder with safetensors`},
		"pytorch_model.bin": {torch, `starts with "PK": a PyTorch checkpoint (a zip archive of pickles), which can run code and is not read; want a GGUF file or a folder with safetensors`},
		"old.pt":            {"\x80\x02}q\x00.", "is a Python pickle, such as an old PyTorch checkpoint, which can run code and is not read; want a GGUF file or a folder with safetensors"},
		"vapp":              {"\x7fELF\x02\x01", "is a program or library (ELF); want a GGUF file or a folder with safetensors"},
		"m.gguf.gz":         {"\x1f\x8b\x08\x00", "is a gzip archive; want a GGUF file or a folder with safetensors"},
		"page.gguf":         {"<!doctype html><html>", `starts with "<": an HTML page, saved in place of the file; fetch the file itself: on a hub its address has /resolve/ where that of the page has /blob/`},
		"lfs.gguf":          {"version https://git-lfs.github.com/spec/v1\noid sha256:1", "starts with \"version https://git-lfs\": a Git LFS pointer, which stands for the file; run `git lfs pull` in its folder, or `vapp pull ORG/NAME`"},
		"config.json":       {"{\"a\": 1}", "is JSON; give its folder, DIR"},
		"x.json":            {"{\"a\": 1}", "is JSON; want a GGUF file or a folder with safetensors"},
		"model.safetensors": {string(stFile(`{"a":{"dtype":"F32","shape":[4],"data_offsets":[0,16]}}`, 16)), "is safetensors weights; give its folder, DIR, which needs config.json and tokenizer.json too"},
		"m.onnx":            {"\x08\x07\x12\x07pytorch\x1a\x01", "is an ONNX model; want a GGUF file or a folder with safetensors"},
		"old.ggml.bin":      {"tjgg\x03\x00\x00\x00", "is a model in GGML's format before GGUF; fetch a GGUF file, or convert it with llama.cpp"},
		"empty.gguf":        {"", "is empty"},
		"zeros.gguf":        {strings.Repeat("\x00", 4096), "is all zero bytes, as of an unfinished download; fetch it again"},
		"notes.txt":         {"hello\n", "is text; want a GGUF file or a folder with safetensors"},
		"noise":             {"\x01\x02\x03\x04", "is binary data of an unknown kind; want a GGUF file or a folder with safetensors"},
		"cut1.gguf":         {string(gguf[:9]), "tensor_count: needs 8 bytes at byte 8, the file has 1 more: it is cut off or damaged; fetch it again"},
		"GGU":               {"GGU", "is text; want a GGUF file or a folder with safetensors"},
	} {
		path := writeTemp(t, name, []byte(c.text))
		_, err := Open(path)
		var own *Error
		want := path + ": " + strings.ReplaceAll(c.want, "DIR", filepath.Dir(path))
		if !errors.As(err, &own) || err.Error() != want {
			t.Errorf("%s:\n got %v\nwant %s", name, err, want)
		}
	}
	for cut := 0; cut < len(gguf); cut += 41 {
		if _, err := Open(writeTemp(t, "cut.gguf", gguf[:cut])); err == nil || cut > 4 && !strings.Contains(err.Error(), damaged) {
			t.Errorf("cut to %d bytes: %v", cut, err)
		}
	}
}

// TestForeignFolder opens folders that are no models; DIR is the folder.
func TestForeignFolder(t *testing.T) {
	config, err := json.Marshal(small())
	if err != nil {
		t.Fatal(err)
	}
	for files, want := range map[string]string{
		"":                            "is an empty folder; want a GGUF file or a folder with safetensors",
		"notes.md":                    "holds no model: no config.json, no *.safetensors, no *.gguf; want a GGUF file or a folder with safetensors",
		"a.gguf":                      "holds a GGUF model; give the file: DIR/a.gguf",
		"a.gguf b.gguf mmproj-a.gguf": "holds 2 GGUF models; give one of them: DIR/a.gguf, DIR/b.gguf",
		"config.json a.gguf b.gguf":   "holds 2 GGUF models; give one of them: DIR/a.gguf, DIR/b.gguf",
		"a-00001-of-00002.gguf a-00002-of-00002.gguf": "holds a GGUF model; give the file: DIR/a-00001-of-00002.gguf",
		"tokenizer.json":                                "holds a tokenizer and no config.json and no weights; want a GGUF file or a folder with safetensors",
		"pytorch_model.bin training_args.bin":           "holds pytorch_model.bin, which is not read; want a GGUF file or a folder with safetensors",
		"config.json pytorch_model.bin":                 "holds pytorch_model.bin, which is not read; want a GGUF file or a folder with safetensors",
		"a.pt b.pt c.pt d.pt":                           "holds a.pt, b.pt, c.pt and 1 more, which are not read; want a GGUF file or a folder with safetensors",
		"adapter_config.json adapter_model.safetensors": "holds a LoRA adapter (adapter_config.json), not a model; give the folder of its base model",
		"model_index.json":                              "holds a pipeline of diffusers (model_index.json), which is not served; want a GGUF file or a folder with safetensors",
		"model.safetensors":                             "holds safetensors and no config.json, which describes the model; fetch config.json and tokenizer.json too",
		"config.json model-00001-of-00002.safetensors":  "holds model-00001-of-00002.safetensors, and no model.safetensors.index.json, which lists the parts; fetch it too, or name a single file model.safetensors",
		"config.json":                                   "holds neither model.safetensors nor model.safetensors.index.json",
		"snapshots/0123/config.json":                    "is a folder of the hub's cache; give ORG/NAME, or its snapshot: DIR/snapshots/0123",
		"one/config.json two/config.json":               "has no config.json, but folders with one; give one of them: DIR/one, DIR/two",
	} {
		dir := t.TempDir()
		for _, name := range strings.Fields(files) {
			if err := os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o755); err != nil {
				t.Fatal(err)
			}
			put(t, dir, filepath.FromSlash(name), string(config))
		}
		_, err := Open(dir)
		var own *Error
		if want = dir + ": " + strings.ReplaceAll(want, "DIR", dir); !errors.As(err, &own) || err.Error() != want {
			t.Errorf("%q:\n got %v\nwant %s", files, err, want)
		}
	}
}

// TestForeignShard checks a folder whose files are not what their names say.
func TestForeignShard(t *testing.T) {
	for name, want := range map[string]string{
		"config.json":         "a Git LFS pointer",
		"model-1.safetensors": "a Git LFS pointer",
	} {
		dir := modelDir(t)
		put(t, dir, name, "version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 5\n")
		if _, err := Open(dir); err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// FuzzForeign opens any bytes as a model of each name that a user may give: the error is one line.
func FuzzForeign(f *testing.F) {
	f.Add([]byte("PK\x03\x04"), false)
	f.Add([]byte("GGUF\x03\x00\x00\x00"), false)
	f.Add([]byte("version https://git-lfs.github.com/spec/v1\n"), true)
	f.Add(stFile(`{"a":{"dtype":"F32","shape":[4],"data_offsets":[0,16]}}`, 16), true)
	f.Fuzz(func(t *testing.T, data []byte, folder bool) {
		path := writeTemp(t, "model.safetensors", data)
		if folder {
			put(t, filepath.Dir(path), "config.json", `{"model_type": "llama"}`)
			path = filepath.Dir(path)
		}
		c, err := Open(path)
		if err == nil {
			c.Close()
			return
		}
		var own *Error
		if !errors.As(err, &own) || strings.ContainsAny(err.Error(), "\n\x00") {
			t.Errorf("%q: %q is no line of this package", data, err)
		}
	})
}
