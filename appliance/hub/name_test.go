package hub

import (
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestParseName(t *testing.T) {
	for text, want := range map[string]Name{
		"Qwen/Qwen3-0.6B":                   {Repo: "Qwen/Qwen3-0.6B"},
		"a/b@v1.0":                          {Repo: "a/b", Revision: "v1.0"},
		"a/b@refs/pr/3":                     {Repo: "a/b", Revision: "refs/pr/3"},
		"a/b-GGUF:b.Q4_K_M.gguf":            {Repo: "a/b-GGUF", File: "b.Q4_K_M.gguf"},
		"a/b:UD/b-00001-of-2.GGUF@" + "abc": {Repo: "a/b", File: "UD/b-00001-of-2.GGUF", Revision: "abc"},
	} {
		got, ok := ParseName(text)
		if !ok || got != want || got.String() != text {
			t.Errorf("%s: %+v, %v, %s", text, got, ok, got)
		}
	}
	for _, text := range []string{
		"", "a", "/a/b", "./a/b", "../a/b", "~/a", "a/b/c", "models/x.gguf", "a/b.safetensors", "a/b.git", "a/..", "../b", "a--b/c", "a/b-", "a b/c",
		"a/b:c.bin", "a/b:../c.gguf", "a/b:/c.gguf", "a/b@", "a/b@../x", "a/b@a b", "a/b@x\x00", "a/b@-/../..", strings.Repeat("a", 2000) + "/b", "C:\\x/y",
	} {
		if n, ok := ParseName(text); ok {
			t.Errorf("%q is read as %+v", text, n)
		}
	}
}

func TestFromEnv(t *testing.T) {
	home := t.TempDir()
	t.Setenv("HOME", home)
	t.Setenv("USERPROFILE", home)
	tokens := filepath.Join(home, "elsewhere")
	if err := os.MkdirAll(tokens, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(tokens, "token"), []byte("hf_file\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	read := func(env map[string]string) Settings {
		return FromEnv(func(k string) string {
			if v, ok := env[k]; ok {
				return v
			}
			return map[string]string{"HOME": home}[k]
		})
	}
	for what, c := range map[string]struct {
		env  map[string]string
		want Settings
	}{
		"nothing":  {nil, Settings{Cache: filepath.Join(home, ".cache/huggingface/hub"), Endpoint: DefaultEndpoint, Stall: defaultStall}},
		"xdg":      {map[string]string{"XDG_CACHE_HOME": "/x"}, Settings{Cache: "/x/huggingface/hub", Endpoint: DefaultEndpoint, Stall: defaultStall}},
		"home":     {map[string]string{"HF_HOME": "~/elsewhere"}, Settings{Cache: filepath.Join(tokens, "hub"), Token: "hf_file", Endpoint: DefaultEndpoint, Stall: defaultStall}},
		"cache":    {map[string]string{"HF_HOME": "/h", "HF_HUB_CACHE": "$HF_HOME/c"}, Settings{Cache: "/h/c", Endpoint: DefaultEndpoint, Stall: defaultStall}},
		"the rest": {map[string]string{"HF_TOKEN": " t ", "HF_ENDPOINT": "http://m/", "HF_HUB_OFFLINE": "yes", "HF_HUB_DOWNLOAD_TIMEOUT": "7"}, Settings{Cache: filepath.Join(home, ".cache/huggingface/hub"), Token: "t", Endpoint: "http://m", Offline: true, Stall: 7e9}},
	} {
		if got := read(c.env); got != c.want {
			t.Errorf("%s: %+v, want %+v", what, got, c.want)
		}
	}
}

// FuzzListing checks that every picked file is below the snapshot.
func FuzzListing(f *testing.F) {
	f.Add([]byte(`{"sha":"00000000000000000000000000000000c0ffee00","siblings":[{"rfilename":"config.json","size":1,"blobId":"x"},{"rfilename":"tokenizer.json"},{"rfilename":"model.safetensors","lfs":{"sha256":"a","size":3}}]}`), []byte(`{"weight_map":{"a":"b.safetensors"}}`))
	f.Add([]byte(`{"sha":"x"}`), []byte(`{}`))
	f.Add([]byte(`{"sha":"00000000000000000000000000000000c0ffee00","siblings":[{"rfilename":"config.json"},{"rfilename":"tokenizer.json"},{"rfilename":"model.safetensors.index.json"},{"rfilename":"../x.safetensors"},{"rfilename":"a/b.gguf"}]}`), []byte(`{"weight_map":{"a":"../x.safetensors"}}`))
	n := Name{Repo: "a/b"}
	f.Fuzz(func(t *testing.T, body, index []byte) {
		l, err := parseListing(n, body)
		if err != nil {
			return
		}
		p, err := pick(n, Want{}, l.Files, func(File) ([]byte, error) { return index, nil })
		if err != nil {
			return
		}
		s := Settings{Cache: string(filepath.Separator) + "cache"}
		for _, file := range p.files() {
			at := filepath.Join(s.snapshot(n, l.Commit), filepath.FromSlash(file.Path))
			if !strings.HasPrefix(at, s.snapshot(n, l.Commit)+string(filepath.Separator)) {
				t.Fatalf("%q leads to %s", file.Path, at)
			}
		}
	})
}

// FuzzHeaders checks that headers and records are parsed or refused.
func FuzzHeaders(f *testing.F) {
	f.Add("bytes 0-9/10", `"abc"`, "10", []byte(`{"size":10,"part":3,"done":[0,3]}`))
	f.Add("bytes 9-0/*", `W/"x"`, "-1", []byte(`{"size":-1,"part":0}`))
	f.Fuzz(func(t *testing.T, span, etag, size string, record []byte) {
		if first, total, ok := parseContentRange(span); ok && (first < 0 || total >= 0 && total <= first) {
			t.Fatalf("%q: %d of %d", span, first, total)
		}
		h := http.Header{"Etag": {etag}, "Content-Length": {size}}
		_, _ = fromHeaders(&Pull{}, File{}, h, false)
		if p, ok := parseParts(record); ok {
			if n := p.bytes(); n < 0 || n > p.Size {
				t.Fatalf("%s: %d bytes", record, n)
			}
		}
		if n, ok := ParseName(span); ok && n.String() != span {
			t.Fatalf("%q: %s", span, n)
		}
	})
}
