package hub

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"vapp.dev/appliance/hub/hubtest"
)

const model = "acme/tiny"

// noise returns n incompressible bytes.
func noise(n int, seed uint64) []byte {
	b := make([]byte, n)
	r := rand.NewChaCha8([32]byte{byte(seed)})
	_, _ = r.Read(b)
	return b
}

// tiny returns a model whose files have several parts each.
func tiny() map[string][]byte {
	return map[string][]byte{
		"config.json": []byte(`{"a":1}`), "tokenizer.json": noise(3000, 1), "tokenizer_config.json": []byte(`{}`),
		"model.safetensors.index.json":     []byte(`{"weight_map":{"x":"model-00001-of-00002.safetensors","y":"model-00002-of-00002.safetensors"}}`),
		"model-00001-of-00002.safetensors": noise(100_000, 2), "model-00002-of-00002.safetensors": noise(70_001, 3),
		"pytorch_model.bin": noise(5000, 4), "README.md": []byte("# tiny"), "original/model.safetensors": noise(5000, 5),
	}
}

// start runs a hub with the model, and returns a client with an empty cache.
func start(t *testing.T) (*hubtest.Hub, *hubtest.Repo, *Client) {
	t.Helper()
	h := hubtest.Start()
	t.Cleanup(h.Close)
	repo := h.Add(model, tiny())
	return h, repo, client(t, h, t.TempDir())
}

func client(t *testing.T, h *hubtest.Hub, cache string) *Client {
	c := NewClient(Settings{Cache: cache, Endpoint: h.URL, Stall: 10 * time.Second}, "vapp/test")
	c.part = 16 << 10
	c.wait = func(int) time.Duration { return time.Millisecond }
	t.Cleanup(c.http.CloseIdleConnections)
	return c
}

func named(t *testing.T, text string) Name {
	t.Helper()
	n, ok := ParseName(text)
	if !ok {
		t.Fatalf("%q is no name", text)
	}
	return n
}

// pull downloads a whole model.
func pull(c *Client, n Name, w Want) (Cached, error) {
	p, err := c.Open(context.Background(), n, w)
	if err != nil {
		return Cached{}, err
	}
	return p.Weights(context.Background())
}

// holds fails unless the snapshot has exactly the files want of tree, with equal content.
func holds(t *testing.T, dir string, tree map[string][]byte, want ...string) {
	t.Helper()
	var got []string
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		rel, _ := filepath.Rel(dir, path)
		b, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		if !bytes.Equal(b, tree[filepath.ToSlash(rel)]) {
			t.Errorf("%s has %d bytes that are not the hub's", rel, len(b))
		}
		got = append(got, filepath.ToSlash(rel))
		return nil
	})
	if err != nil || len(got) != len(want) {
		t.Errorf("the snapshot has %q, want %q (%v)", got, want, err)
	}
}

var served = []string{
	"config.json", "model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors", "model.safetensors.index.json", "tokenizer.json", "tokenizer_config.json",
}

// TestPullOfSentences checks that the extra files of Sentence Transformers are downloaded.
func TestPullOfSentences(t *testing.T) {
	h, _, c := start(t)
	files := tiny()
	files["modules.json"], files["1_Pooling/config.json"] = []byte(`[]`), []byte(`{"pooling_mode_cls_token":true}`)
	files["2_Dense/config.json"] = []byte(`{}`)
	h.Add("acme/sentences", files)
	got, err := pull(c, named(t, "acme/sentences"), Want{})
	if err != nil {
		t.Fatal(err)
	}
	holds(t, got.Path, files, append([]string{"1_Pooling/config.json", "modules.json"}, served...)...)
}

func TestPull(t *testing.T) {
	h, _, c := start(t)
	var last Progress
	c.Progress = func(p Progress) { last = p }
	got, err := pull(c, named(t, model), Want{})
	if err != nil {
		t.Fatal(err)
	}
	holds(t, got.Path, tiny(), served...)
	if last != (Progress{170_001, 170_001}) {
		t.Errorf("progress ended with %+v", last)
	}
	// The exact layout of huggingface_hub.
	root := filepath.Join(c.Cache, "models--acme--tiny")
	if ref, err := os.ReadFile(filepath.Join(root, "refs", "main")); string(ref) != hubtest.Commit(0) {
		t.Errorf("refs/main is %q, %v", ref, err)
	}
	link, err := os.Readlink(filepath.Join(root, "snapshots", hubtest.Commit(0), "model-00001-of-00002.safetensors"))
	if want := filepath.Join("..", "..", "blobs", hubtest.Blob(tiny()["model-00001-of-00002.safetensors"])); link != want || err != nil {
		t.Errorf("the link is %q, %v; want %q", link, err, want)
	}
	left, _ := filepath.Glob(filepath.Join(root, "blobs", "*incomplete*"))
	if len(left) > 0 {
		t.Errorf("left over: %q", left)
	}
	// A cached model is found without the hub, and not downloaded again.
	h.Requests()
	if found, ok := c.Find(named(t, model), Want{}); !ok || found != got {
		t.Errorf("found %+v, %v", found, ok)
	}
	if _, err := pull(c, named(t, model), Want{}); err != nil {
		t.Error(err)
	}
	for _, r := range h.Requests() {
		if strings.Contains(r.Path, "resolve") || r.Store {
			t.Errorf("fetched again: %+v", r)
		}
	}
}

func TestWants(t *testing.T) {
	h, _, c := start(t)
	h.Add("acme/gguf", map[string][]byte{"a.Q4_0.gguf": noise(5000, 6), "sub/b.gguf": noise(6000, 7), "README.md": nil})
	h.Add("acme/split", map[string][]byte{
		"Q4/m-00001-of-00003.gguf": noise(5000, 1), "Q4/m-00002-of-00003.gguf": noise(4000, 2), "Q4/m-00003-of-00003.gguf": noise(3000, 3), "mmproj-F16.gguf": noise(2000, 4),
	})
	h.Add("acme/cut", map[string][]byte{"m-00001-of-00002.gguf": noise(5000, 1), "n-00002-of-00002.gguf": noise(5000, 2)})
	h.Add("acme/one", map[string][]byte{"only.gguf": noise(5000, 8)})
	h.Add("acme/old", map[string][]byte{"config.json": []byte("{}"), "tokenizer.json": []byte("{}"), "pytorch_model.bin": noise(5000, 9)})
	for text, want := range map[string]string{
		"acme/gguf:sub/b.gguf": "sub/b.gguf", "acme/one": "only.gguf",
		"acme/split": "Q4/m-00001-of-00003.gguf", "acme/split:Q4/m-00001-of-00003.gguf": "Q4/m-00001-of-00003.gguf",
	} {
		got, err := pull(c, named(t, text), Want{})
		if err != nil || !strings.HasSuffix(filepath.ToSlash(got.Path), "/"+want) {
			t.Errorf("%s: %+v, %v", text, got, err)
		}
		if found, ok := c.Find(named(t, text), Want{}); !ok || found != got {
			t.Errorf("%s: found %+v, %v", text, found, ok)
		}
	}
	for text, want := range map[string]struct {
		kind Kind
		msg  string
	}{
		"acme/gguf":                           {Unsuitable, "2 GGUF files: name one, as acme/gguf:a.Q4_0.gguf"},
		"acme/gguf:c.gguf":                    {NoFile, "no file c.gguf; its GGUF files: a.Q4_0.gguf, sub/b.gguf"},
		"acme/split:Q4/m-00002-of-00003.gguf": {Unsuitable, "Q4/m-00002-of-00003.gguf is file 2 of a model of 3 files; name the first, Q4/m-00001-of-00003.gguf"},
		"acme/cut":                            {Unsuitable, "2 GGUF files: name one, as acme/cut:m-00001-of-00002.gguf; there are m-00001-of-00002.gguf, n-00002-of-00002.gguf"},
		"acme/cut:m-00001-of-00002.gguf":      {NoFile, "no file m-00002-of-00002.gguf, which belongs to m-00001-of-00002.gguf"},
		"acme/old":                            {Unsuitable, "pytorch_model.bin are not read"},
	} {
		_, err := pull(c, named(t, text), Want{})
		refused(t, text, err, want.kind, want.msg)
	}
	split, err := pull(c, named(t, "acme/split"), Want{})
	if err != nil {
		t.Fatal(err)
	}
	for i, size := range []int64{5000, 4000, 3000} {
		st, err := os.Stat(strings.Replace(split.Path, "-00001-", fmt.Sprintf("-%05d-", i+1), 1))
		if err != nil || st.Size() != size {
			t.Errorf("file %d of the split model: %v, %v", i+1, st, err)
		}
	}
	kimi := map[string][]byte{"config.json": []byte("{}"), "tiktoken.model": noise(500, 6), "tokenizer_config.json": []byte("{}"), "model.safetensors": noise(5000, 7)}
	h.Add("acme/kimi", kimi)
	got, err := pull(c, named(t, "acme/kimi"), Want{})
	if err != nil {
		t.Fatal(err)
	}
	holds(t, got.Path, kimi, "config.json", "tiktoken.model", "tokenizer_config.json", "model.safetensors")
	if found, ok := c.Find(named(t, "acme/kimi"), Want{}); !ok || found != got {
		t.Errorf("acme/kimi: found %+v, %v", found, ok)
	}
	got, err = pull(c, named(t, model), Want{Format: "dummy"})
	if err != nil {
		t.Fatal(err)
	}
	holds(t, got.Path, tiny(), "config.json", "tokenizer.json", "tokenizer_config.json")
	if _, ok := c.Find(named(t, model), Want{}); ok {
		t.Error("a snapshot without weights is found as whole")
	}
}

func refused(t *testing.T, what string, err error, kind Kind, msg string) {
	t.Helper()
	var e *Error
	if !errors.As(err, &e) || e.Kind != kind || !strings.Contains(err.Error(), msg) || strings.Contains(err.Error(), "\n") {
		t.Errorf("%s: %v; want kind %d and %q in one line", what, err, kind, msg)
	}
}

func TestRevisions(t *testing.T) {
	_, repo, c := start(t)
	next := tiny()
	next["config.json"] = []byte(`{"a":2}`)
	repo.Trees[hubtest.Commit(1)] = next
	repo.Refs["v2"], repo.Refs["refs/pr/7"] = hubtest.Commit(1), hubtest.Commit(1)
	for _, r := range []string{"v2", hubtest.Commit(1), "refs/pr/7"} {
		n := named(t, model+"@"+r)
		got, err := pull(c, n, Want{})
		if err != nil || got.Commit != hubtest.Commit(1) {
			t.Fatalf("%s: %+v, %v", r, got, err)
		}
		holds(t, got.Path, next, served...)
		if found, ok := c.Find(n, Want{}); !ok || found != got {
			t.Errorf("%s: found %+v, %v", r, found, ok)
		}
	}
	if _, ok := c.Find(named(t, model), Want{}); ok {
		t.Error("main was never fetched, and is found")
	}
	_, err := pull(c, named(t, model+"@v3"), Want{})
	refused(t, "v3", err, BadRevision, `no branch, tag or commit "v3"`)
	// The branch moves between two pulls: the second pull gets the new commit.
	if _, err := pull(c, named(t, model), Want{}); err != nil {
		t.Fatal(err)
	}
	repo.Refs["main"] = hubtest.Commit(1)
	if got, err := pull(c, named(t, model), Want{}); err != nil || got.Commit != hubtest.Commit(1) {
		t.Errorf("%+v, %v", got, err)
	}
}

// TestResume checks that parts downloaded before an interruption are not downloaded again.
func TestResume(t *testing.T) {
	h, _, c := start(t)
	c.open = make(chan struct{}, 1) // one part at a time
	h.Misbehave(func(r hubtest.Request) *hubtest.Fault {
		if r.Store && r.Range == "bytes=65536-81919" {
			return &hubtest.Fault{Status: 403}
		}
		return nil
	})
	_, err := pull(c, named(t, model), Want{})
	refused(t, "cut", err, Unreachable, "answered 403 Forbidden; try again later")
	h.Misbehave(nil)
	type piece struct{ path, span string }
	had := map[piece]bool{} // parts that came before the one that failed, in any order
	for _, r := range h.Requests() {
		if r.Range == "bytes=65536-81919" {
			break
		}
		had[piece{r.Path, r.Range}] = r.Store
	}
	again := client(t, h, c.Cache)
	var first Progress
	again.Progress = func(p Progress) {
		if first.Total == 0 {
			first = p
		}
	}
	got, err := pull(again, named(t, model), Want{})
	if err != nil {
		t.Fatal(err)
	}
	holds(t, got.Path, tiny(), served...)
	if first.Total == 0 || first.Total >= 170_001 {
		t.Errorf("the second run expects %d bytes: nothing was kept", first.Total)
	}
	for _, r := range h.Requests() {
		if had[piece{r.Path, r.Range}] {
			t.Errorf("fetched twice: %+v", r)
		}
	}
}

// TestTwoAtOnce checks that one of two processes downloads and the other one waits.
func TestTwoAtOnce(t *testing.T) {
	h, _, c := start(t)
	clients := []*Client{c, client(t, h, c.Cache), client(t, h, c.Cache)}
	var wg sync.WaitGroup
	for _, c := range clients {
		wg.Go(func() {
			if _, err := pull(c, named(t, model), Want{}); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	for _, r := range h.Requests() {
		if r.Store && r.N > 0 {
			t.Errorf("fetched twice: %+v", r)
		}
	}
	if got, ok := c.Find(named(t, model), Want{}); !ok {
		t.Error("not there")
	} else {
		holds(t, got.Path, tiny(), served...)
	}
}

// TestNoSpace checks that nothing is downloaded to a disk without enough free space.
func TestNoSpace(t *testing.T) {
	h, _, c := start(t)
	c.free = func(string) (int64, error) { return 170_000, nil }
	_, err := pull(c, named(t, model), Want{})
	refused(t, "disk", err, NoSpace, "the download needs")
	for _, r := range h.Requests() {
		if r.Store {
			t.Errorf("fetched: %+v", r)
		}
	}
}
