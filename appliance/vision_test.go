package appliance

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"image"
	"image/color"
	"image/png"
	"io"
	"net/http"
	"path/filepath"
	"strings"
	"testing"

	"vapp.dev/engine/enginetest"
)

// seeing copies a small checkpoint with a vision tower, with a tokenizer of bytes, a template and the
// processor's config, and returns the folder.
func seeing(t *testing.T, name, processor, template string, special map[int]string) string {
	t.Helper()
	dir := t.TempDir()
	from := filepath.Join("..", "engine", "models", "testdata", name)
	if err := (enginetest.Seeing{From: from, Processor: processor, Template: template, Special: special}).Write(dir); err != nil {
		t.Fatal(err)
	}
	return dir
}

// parts is a template that writes the parts of messages, image for an image.
func parts(image string) string {
	return `{% for m in messages %}{% if m.content is string %}{{ m.content }}{% else %}{% for p in m.content %}{% if p.type == "text" %}{{ p.text }}{% else %}` +
		image + `{% endif %}{% endfor %}{% endif %}{% endfor %}`
}

// pngURL returns a data: URL of a picture of one colour with a line.
func pngURL(t *testing.T, width, height int, c color.RGBA) string {
	t.Helper()
	m := image.NewRGBA(image.Rect(0, 0, width, height))
	for y := range height {
		for x := range width {
			m.SetRGBA(x, y, c)
		}
		m.SetRGBA(y%width, y, color.RGBA{255, 255, 255, 255})
	}
	var b bytes.Buffer
	if err := png.Encode(&b, m); err != nil {
		t.Fatal(err)
	}
	return "data:image/png;base64," + base64.StdEncoding.EncodeToString(b.Bytes())
}

// look sends a message of a text between images and returns status and body.
func (s *server) look(t *testing.T, text string, urls ...string) (int, string) {
	t.Helper()
	content := []map[string]any{}
	for _, u := range urls {
		content = append(content, map[string]any{"type": "image_url", "image_url": map[string]any{"url": u}})
	}
	return s.lookAt(t, append(content, map[string]any{"type": "text", "text": text}))
}

func (s *server) lookAt(t *testing.T, content []map[string]any) (int, string) {
	t.Helper()
	b, err := json.Marshal(map[string]any{"model": "toy", "max_tokens": 8, "temperature": 0, "messages": []map[string]any{{"role": "user", "content": content}}})
	if err != nil {
		t.Fatal(err)
	}
	r, err := http.Post(s.url+"/v1/chat/completions", "application/json", bytes.NewReader(b))
	if err != nil {
		t.Fatal(err)
	}
	defer r.Body.Close()
	text, err := io.ReadAll(r.Body)
	if err != nil {
		t.Fatal(err)
	}
	return r.StatusCode, string(text)
}

// replyOf returns the prompt's tokens and the reply of a body.
func replyOf(t *testing.T, code int, body string) (prompt int, text string) {
	t.Helper()
	var reply struct {
		Choices []struct{ Message struct{ Content string } }
		Usage   struct {
			PromptTokens int `json:"prompt_tokens"`
		}
	}
	if err := json.Unmarshal([]byte(body), &reply); err != nil || code != http.StatusOK || len(reply.Choices) != 1 {
		t.Fatalf("%d %s", code, body)
	}
	return reply.Usage.PromptTokens, reply.Choices[0].Message.Content
}

const (
	gemmaProcessor = `{"image_processor_type": "Gemma4ImageProcessor", "patch_size": 4, "pooling_kernel_size": 3, "max_soft_tokens": 70}`
	qwenProcessor  = `{"image_processor_type": "Qwen2VLImageProcessorFast", "patch_size": 4, "temporal_patch_size": 2, "merge_size": 2,
		"size": {"shortest_edge": 256, "longest_edge": 1024}, "image_mean": [0.5, 0.5, 0.5], "image_std": [0.5, 0.5, 0.5]}`
	looking = `maxModelLen: 256, memory: kvCache: "8MiB", serve: servedModelName: ["toy"], multimodal: {limits: image: 2, loadMemory: "64MiB", cache: "16MiB"`
)

// TestImagesServed sends images to small Gemma 4 and Qwen3.5 checkpoints: their tokens are counted, the
// reply depends on the picture and not on what was kept of it, and what cannot be used is refused.
func TestImagesServed(t *testing.T) {
	for _, c := range []struct {
		name, model, processor, template, more string
		special                                map[int]string
		around                                 int // tokens around an image's own
	}{
		{"gemma4", "tiny-gemma4-tower", gemmaProcessor, parts("<|image|>"), looking + `, image: tokens: 70}`,
			map[int]string{120: "<boi>", 121: "<eoi>", 122: "<|image|>"}, 2},
		{"qwen35", "tiny-qwen35-tower", qwenProcessor, parts("<|vision_start|><|image_pad|><|vision_end|>"), looking + `, image: maxPixels: 16384}`,
			map[int]string{120: "<|vision_start|>", 121: "<|vision_end|>", 122: "<|image_pad|>"}, 2},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := serve(t, seeing(t, c.model, c.processor, c.template, c.special), c.more)
			red, blue := pngURL(t, 60, 40, color.RGBA{200, 10, 30, 255}), pngURL(t, 60, 40, color.RGBA{10, 30, 220, 255})
			code, body := s.look(t, "what is this?")
			plain, _ := replyOf(t, code, body)
			code, body = s.look(t, "what is this?", red)
			withImage, reply := replyOf(t, code, body)
			if withImage <= plain+c.around {
				t.Errorf("%d tokens with an image, %d without", withImage, plain)
			}
			code, body = s.look(t, "what is this?", red)
			if n, again := replyOf(t, code, body); n != withImage || again != reply {
				t.Errorf("again: %d tokens and %q; at first %d and %q", n, again, withImage, reply)
			}
			code, body = s.look(t, "what is this?", red, blue)
			if n, _ := replyOf(t, code, body); n != plain+2*(withImage-plain) {
				t.Errorf("two images: %d tokens; one %d, none %d", n, withImage, plain)
			}
			code, body = s.lookAt(t, []map[string]any{{"type": "image_url", "image_url": map[string]any{"url": red}, "uuid": "mine"}, {"type": "text", "text": "what is this?"}})
			replyOf(t, code, body)
			code, body = s.lookAt(t, []map[string]any{{"type": "image_url", "image_url": nil, "uuid": "mine"}, {"type": "text", "text": "what is this?"}})
			if n, again := replyOf(t, code, body); n != withImage || again != reply {
				t.Errorf("by uuid: %d tokens and %q; want %d and %q", n, again, withImage, reply)
			}
			var now status
			if _, body := s.get(t, "/admin/status"); json.Unmarshal([]byte(body), &now) != nil || len(now.Media) != 1 || now.Media["image"] != 2 {
				t.Errorf("status: limits %v, want 2 images and nothing else: %s", now.Media, body)
			}
			was := s.live.Load()
			for _, change := range []bool{false, true} {
				next := *was.profile
				if change {
					m := *next.Multimodal
					next.Multimodal, m.AllowedDomains = &m, []string{"images.example.com"}
				}
				if l, err := s.newLive(&next, s.serving().prepared.Model); err != nil || (l.api.Chat.Vision == was.api.Chat.Vision) == change {
					t.Errorf("a reload, of multimodal %v: %v, or the wrong loader", change, err)
				}
			}
			for _, bad := range []struct {
				urls []string
				code int
				want string
			}{
				{[]string{red, red, blue}, 400, "At most 2 image(s) may be provided in one prompt."},
				{[]string{red[:202]}, 400, "Failed to load image"},
				{[]string{"data:image/png;base64,aGVsbG8="}, 400, "Failed to load image"},
				{[]string{"data:image/png,x"}, 501, "Only base64 data URLs are supported for now."},
				{[]string{"http://169.254.169.254/latest"}, 400, "allowed"},
				{[]string{"file:///etc/passwd"}, 400, ""},
				{[]string{"gopher://x"}, 400, "The URL must be either a HTTP, data or file URL."},
			} {
				if code, body := s.look(t, "x", bad.urls...); code != bad.code || !strings.Contains(body, bad.want) || strings.Contains(body, "\n") {
					t.Errorf("%.60s: %d %s; want %d and %q", bad.urls, code, body, bad.code, bad.want)
				}
			}
		})
	}
}
