package console

import (
	"encoding/base64"
	"encoding/json"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// write writes files into a folder and returns it.
func write(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range files {
		if err := os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// TestImages checks that images go with one message, in order and before its text, that /retry sends
// them again, that /clear drops them, and that /save and /load keep them.
func TestImages(t *testing.T) {
	const png = "\x89PNG\r\n\x1a\n"
	dir := write(t, map[string]string{"a b.png": png, "b.gif": "GIF89a"})
	f := &fake{reply: func(w http.ResponseWriter, n int) {
		if n == 1 {
			http.Error(w, `{"error":{"message":"Failed to load image"}}`, http.StatusBadRequest)
			return
		}
		stream(hello, world, usage)(w, n)
	}}
	saved := filepath.Join(dir, "chat.json")
	_, errs, err := typed(t, f, false, "/image \""+dir+"/a b.png\"\n/image "+dir+"/b.gif\nwhat?\n/retry\nand?\n/save "+saved+"\n/clear\n/image "+dir+"/b.gif\n/clear\nplain\n/load "+saved+"\n/retry\n")
	if err == nil || strings.Count(errs, "\n") != 1 || !strings.Contains(errs, "line 3: ") || !strings.Contains(errs, "Failed to load image") {
		t.Fatalf("%v %q", err, errs)
	}
	image := func(kind, text string) string {
		return `{"image_url":{"url":"data:image/` + kind + `;base64,` + base64.StdEncoding.EncodeToString([]byte(text)) + `"},"type":"image_url"}`
	}
	asked := `{"content":[` + image("png", png) + `,` + image("gif", "GIF89a") + `,{"text":"what?","type":"text"}],"role":"user"}`
	const reply = `{"content":"hello","role":"assistant"}`
	for i, want := range []string{
		`[` + asked + `]`, `[` + asked + `]`, `[` + asked + `,` + reply + `,{"content":"and?","role":"user"}]`, `[{"content":"plain","role":"user"}]`,
		`[` + asked + `,` + reply + `,{"content":"and?","role":"user"}]`,
	} {
		if got, _ := json.Marshal(f.requests[i]["messages"]); string(got) != want {
			t.Errorf("request %d: %s, want %s", i, got, want)
		}
	}
}

// TestImageNote checks what a person reads about images.
func TestImageNote(t *testing.T) {
	dir := write(t, map[string]string{"b.gif": "GIF89a", "scan.tif": "II*\x00", "empty": ""})
	out, _, err := typed(t, &fake{}, true, "/image "+dir+"/b.gif\n/image "+dir+"/scan.tif\n/image "+dir+"/empty\n")
	for _, want := range []string{"The image goes with the next message", "2 images go with the next message", "empty: no image, the file is empty"} {
		if err != nil || !strings.Contains(out, want) {
			t.Errorf("%v, no %q in %q", err, want, out)
		}
	}
	if url, err := ImageURL(filepath.Join(dir, "scan.tif")); err != nil || !strings.HasPrefix(url, "data:image/tiff;base64,") {
		t.Errorf("%s %v", url, err)
	}
}

// TestMessageParts checks that a message of the API becomes the same one again, and that parts which
// a chat cannot show are refused.
func TestMessageParts(t *testing.T) {
	for _, text := range []string{
		`{"role":"user","content":"a"}`, `{"role":"user","content":[{"type":"image_url","image_url":{"url":"http://x/a"}}]}`,
		`{"role":"user","content":[{"type":"image_url","image_url":{"url":"data:,"}},{"type":"text","text":"a"}]}`,
	} {
		var m Message
		err := json.Unmarshal([]byte(text), &m)
		if again, _ := json.Marshal(m); err != nil || string(again) != text {
			t.Errorf("%s %v, want %s", again, err, text)
		}
	}
	for _, text := range []string{`{"content":7}`, `{"content":[{"type":"input_audio"}]}`, `{"content":[{"type":"image_url"}]}`, `{"content":["a"]}`} {
		var m Message
		if err := json.Unmarshal([]byte(text), &m); err == nil {
			t.Errorf("%s became %+v", text, m)
		}
	}
}

// TestComplete checks the words that Tab offers.
func TestComplete(t *testing.T) {
	dir := write(t, map[string]string{"cat.png": "", "cats/x": "", "dog.png": "", ".cat": ""})
	for line, want := range map[string][]string{
		"/im": {"/image"}, "/set temp": {"temperature"}, "im": nil, "/tokens x": nil, "/image " + dir + "/no/": nil,
		"/image " + dir + "/ca":       {dir + "/cat.png", dir + "/cats/"},
		"/image " + dir + "/.":        {dir + "/.cat"},
		"/save --force " + dir + "/d": {dir + "/dog.png"},
	} {
		if got := complete(line); !slices.Equal(got, want) {
			t.Errorf("%s: %q, want %q", line, got, want)
		}
	}
}
