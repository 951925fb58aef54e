package appliance

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"image"
	"image/color"
	"image/gif"
	"net/http"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// send is post for a value.
func (s *server) send(t *testing.T, path string, body map[string]any) (int, string) {
	t.Helper()
	b, err := json.Marshal(body)
	if err != nil {
		t.Fatal(err)
	}
	return s.post(t, path, string(b))
}

// watched returns the content of a message with a video before a text.
func filmed(url any, text string) []map[string]any {
	return []map[string]any{{"type": "video_url", "video_url": url, "uuid": "clip"}, {"type": "text", "text": text}}
}

// promptOf returns the text of the prompt of a message.
func (s *server) promptOf(t *testing.T, content []map[string]any) string {
	t.Helper()
	code, body := s.send(t, "/tokenize", map[string]any{"model": "toy", "messages": []map[string]any{{"role": "user", "content": content}}})
	var ids struct{ Tokens []int }
	if err := json.Unmarshal([]byte(body), &ids); err != nil || code != http.StatusOK {
		t.Fatalf("%d %s", code, body)
	}
	code, body = s.send(t, "/detokenize", map[string]any{"model": "toy", "tokens": ids.Tokens})
	var out struct{ Prompt string }
	if err := json.Unmarshal([]byte(body), &out); err != nil || code != http.StatusOK {
		t.Fatalf("%d %s", code, body)
	}
	return out.Prompt
}

// gifURL returns a data: URL of an animation of the pictures of pngURL, one a second.
func gifURL(t *testing.T, width, height int, colors ...color.RGBA) string {
	t.Helper()
	var g gif.GIF
	for _, c := range colors {
		m := image.NewPaletted(image.Rect(0, 0, width, height), color.Palette{c, color.RGBA{255, 255, 255, 255}})
		for y := range height {
			m.SetColorIndex(y%width, y, 1)
		}
		g.Image, g.Delay = append(g.Image, m), append(g.Delay, 100)
	}
	var b bytes.Buffer
	if err := gif.EncodeAll(&b, &g); err != nil {
		t.Fatal(err)
	}
	return "data:image/gif;base64," + base64.StdEncoding.EncodeToString(b.Bytes())
}

// TestVideosServed sends videos to small Gemma 4 and Qwen3.5 checkpoints: labels and frames stand in the
// prompt as transformers' processors write them, a GIF of the same frames is the same prompt, and what
// cannot be used is refused.
func TestVideosServed(t *testing.T) {
	if testing.Short() {
		t.Skip("not run: -short leaves it out, make test runs it")
	}
	const sees = `maxModelLen: 256, memory: kvCache: "8MiB", serve: servedModelName: ["toy"], multimodal: {limits: {image: 1, video: 1}, loadMemory: "64MiB", cache: "16MiB", `
	template := func(image, video string) string {
		return `{% for m in messages %}{% for p in m.content %}{% if p.type == "text" %}{{ p.text }}{% elif p.type == "video" %}` + video + `{% else %}` + image + `{% endif %}{% endfor %}{% endfor %}`
	}
	red, blue := color.RGBA{200, 10, 30, 255}, color.RGBA{10, 30, 220, 255}
	for _, c := range []struct {
		name, model, image, video, template, more string
		special                                   map[int]string
		want                                      string // the prompt
	}{
		{"gemma4", "tiny-gemma4-tower", gemmaProcessor, strings.Replace(gemmaProcessor, `"image_processor_type": "Gemma4ImageProcessor"`, `"video_processor_type": "Gemma4VideoProcessor"`, 1),
			template("<|image|>", "<|video|>"), sees + `image: tokens: 70, video: frames: 3}`,
			map[int]string{120: "<boi>", 121: "<eoi>", 122: "<|image|>", 123: "<|video|>"},
			`^00:00 <boi>(<\|video\|>)+<eoi> 00:01 <boi>(<\|video\|>)+<eoi>what\?$`},
		{"qwen35", "tiny-qwen35-tower", qwenProcessor, strings.NewReplacer(`"image_processor_type": "Qwen2VLImageProcessorFast"`, `"video_processor_type": "Qwen3VLVideoProcessor"`, "1024", "4096").Replace(qwenProcessor),
			template("<|vision_start|><|image_pad|><|vision_end|>", "<|vision_start|><|video_pad|><|vision_end|>"), sees + `image: maxPixels: 16384, video: {frames: 3, maxPixels: 16384}}`,
			map[int]string{120: "<|vision_start|>", 121: "<|vision_end|>", 122: "<|image_pad|>", 123: "<|video_pad|>"},
			`^<\|vision_start\|><0.5 seconds><\|vision_start\|>(<\|video_pad\|>)+<\|vision_end\|><\|vision_end\|>what\?$`},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := seeing(t, c.model, c.image, c.template, c.special)
			writeFile(t, filepath.Join(dir, "video_preprocessor_config.json"), c.video)
			s := serve(t, dir, c.more)
			frame := func(w, h int, c color.RGBA) string {
				return strings.TrimPrefix(pngURL(t, w, h, c), "data:image/png;base64,")
			}
			frames := "data:video/jpeg;base64," + frame(60, 40, red) + "," + frame(60, 40, blue)
			prompt := s.promptOf(t, filmed(frames, "what?"))
			if !regexp.MustCompile(c.want).MatchString(prompt) {
				t.Errorf("prompt %s, want %s", prompt, c.want)
			}
			animation := gifURL(t, 60, 40, red, blue)
			if again := s.promptOf(t, filmed(animation, "what?")); again != prompt {
				t.Errorf("prompt of a GIF %s, of frames %s", again, prompt)
			}
			code, body := s.lookAt(t, filmed(frames, "what?"))
			n, reply := replyOf(t, code, body)
			for what, url := range map[string]any{"again": frames, "a GIF": animation, "by uuid": nil} {
				code, body = s.lookAt(t, filmed(url, "what?"))
				if m, again := replyOf(t, code, body); m != n || again != reply {
					t.Errorf("%s: %d tokens and %q, at first %d and %q", what, m, again, n, reply)
				}
			}
			code, body = s.lookAt(t, append(filmed(frames, "and "), map[string]any{"type": "image_url", "image_url": pngURL(t, 20, 20, blue)}))
			if m, _ := replyOf(t, code, body); m <= n {
				t.Errorf("%d tokens with an image, %d without", m, n)
			}
			for _, bad := range []struct {
				content []map[string]any
				code    int
				want    string
			}{
				{append(filmed(frames, "a"), filmed(frames, "b")...), 400, "At most 1 video(s) may be provided in one prompt."},
				{filmed("data:video/mp4;base64,"+base64.StdEncoding.EncodeToString([]byte("\x00\x00\x00\x20ftypisom....")), "a"), 400, "messages.0.content.0: Failed to load video: it is a video (MP4); GIF and WebP are read."},
				{filmed(pngURL(t, 60, 40, red), "a"), 400, "Failed to load video: it is a PNG image; GIF and WebP are read."},
				{filmed(frames+","+frame(40, 60, red), "a"), 400, "all input arrays must have the same shape: frame 2 of a video has 40 × 60 pixels, the first 60 × 40."},
				{filmed("data:video/jpeg;base64,aGVsbG8=", "a"), 400, "Failed to load video: "},
				{filmed("data:video/jpeg;base64,?", "a"), 400, "Non-base64 digit found"},
				{filmed("http://169.254.169.254/latest", "a"), 400, "allowed"},
			} {
				if code, body := s.lookAt(t, bad.content); code != bad.code || !strings.Contains(body, bad.want) || strings.Contains(body, "\n") {
					t.Errorf("%d %s; want %d and %q", code, body, bad.code, bad.want)
				}
			}
			code, body = s.send(t, "/v1/chat/completions", map[string]any{"model": "toy", "media_io_kwargs": map[string]any{"video": map[string]any{"fps": 2}},
				"messages": []map[string]any{{"role": "user", "content": filmed(frames, "a")}}})
			if code != 400 || !strings.Contains(body, "media_io_kwargs is not allowed here; set multimodal.trustRequestKwargs") {
				t.Errorf("media_io_kwargs: %d %s", code, body)
			}
		})
	}
}
