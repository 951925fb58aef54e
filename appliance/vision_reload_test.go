package appliance

import (
	"bufio"
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"image/color"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"vapp.dev/appliance/chat"
	"vapp.dev/schema"
)

// lookStreaming sends images with a text and returns the reply, token by token as it is streamed.
func (s *server) lookStreaming(text string, tokens int, urls ...string) (string, error) {
	content := []map[string]any{}
	for _, u := range urls {
		content = append(content, map[string]any{"type": "image_url", "image_url": map[string]any{"url": u}})
	}
	b, err := json.Marshal(map[string]any{"model": "toy", "max_tokens": tokens, "ignore_eos": true, "temperature": 0, "stream": true,
		"messages": []map[string]any{{"role": "user", "content": append(content, map[string]any{"type": "text", "text": text})}}})
	if err != nil {
		return "", err
	}
	r, err := http.Post(s.url+"/v1/chat/completions", "application/json", bytes.NewReader(b))
	if err != nil {
		return "", err
	}
	defer r.Body.Close()
	var reply strings.Builder
	lines, finished := bufio.NewScanner(r.Body), false
	for lines.Scan() {
		data, is := strings.CutPrefix(lines.Text(), "data: ")
		if !is || data == "[DONE]" {
			if !is && lines.Text() != "" {
				return "", fmt.Errorf("%d: %s", r.StatusCode, lines.Text())
			}
			continue
		}
		var v struct {
			Choices []struct {
				Delta  struct{ Content string }
				Finish string `json:"finish_reason"`
			}
		}
		if err := json.Unmarshal([]byte(data), &v); err != nil {
			return "", fmt.Errorf("%s: %w", data, err)
		}
		for _, c := range v.Choices {
			reply.WriteString(c.Delta.Content)
			finished = finished || c.Finish == "length"
		}
	}
	if !finished {
		return "", fmt.Errorf("the stream ended after %q: %v", reply.String(), lines.Err())
	}
	return reply.String(), nil
}

const (
	eyes      = `maxModelLen: 256, memory: kvCache: "8MiB", serve: servedModelName: ["toy"], `
	eyesMedia = `multimodal: {limits: image: 2, image: tokens: 70, loadMemory: "64MiB", cache: "16MiB"`
)

// sightseers keep streaming a prompt with images until stop; each reply has to be want.
func (s *server) sightseers(t *testing.T, n int, urls ...string) (stop func()) {
	t.Helper()
	want, err := s.lookStreaming("what is this?", 40, urls...)
	if err != nil {
		t.Fatal(err)
	}
	var clients sync.WaitGroup
	var over atomic.Bool
	for range n {
		clients.Go(func() {
			for !over.Load() {
				if got, err := s.lookStreaming("what is this?", 40, urls...); err != nil || got != want {
					t.Errorf("%q, %v; want %q", got, err, want)
					return
				}
			}
		})
	}
	return func() { over.Store(true); clients.Wait() }
}

// seeingServer serves a small Gemma 4 with its tower.
func seeingServer(t *testing.T, more string, change ...func(*Appliance)) *server {
	t.Helper()
	dir := seeing(t, "tiny-gemma4-tower", gemmaProcessor, parts("<|image|>"), map[int]string{120: "<boi>", 121: "<eoi>", 122: "<|image|>"})
	return serve(t, dir, eyes+eyesMedia+"}"+more, change...)
}

// TestMediaLiveReload changes each live field of multimodal while prompts with images are streamed: it
// takes effect, the engine stays, and every stream has the tokens that it has without a reload.
func TestMediaLiveReload(t *testing.T) {
	if testing.Short() {
		t.Skip("not run: -short leaves it out, make test runs it")
	}
	s := seeingServer(t, "")
	red := pngURL(t, 60, 40, color.RGBA{200, 10, 30, 255})
	folder := t.TempDir()
	_, data, _ := strings.Cut(red, ",")
	picture, err := base64.StdEncoding.DecodeString(data)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(folder, "red.png"), picture, 0o644); err != nil {
		t.Fatal(err)
	}
	stop, first := s.sightseers(t, 1, red), s.engine()
	image := func(url string) []map[string]any {
		return []map[string]any{{"type": "image_url", "image_url": map[string]any{"url": url}}}
	}
	other, large := pngURL(t, 80, 40, color.RGBA{10, 200, 30, 255}), pngURL(t, 500, 400, color.RGBA{10, 200, 30, 255})
	for i, c := range []struct {
		fields string
		url    string
		code   int
		want   string
	}{
		{`, maxSourcePixels: 3000`, other, 400, "multimodal.maxSourcePixels, 3000"},
		{`, allowedPath: "` + folder + `"`, "file://" + folder + "/red.png", 200, ""},
		{``, "file://" + folder + "/red.png", 400, "Cannot load local files"},
		{`, allowedDomains: ["images.example.com"]`, "http://other.example.com/a.png", 400, "['images.example.com']"},
		{`, allowedDomains: ["images.example.com"], maxFetchBytes: "600B"`, large, 422, "Remote media download exceeds"},
		{`, redirects: false, fetchTimeout: image: "1s", trustRequestKwargs: true`, other, 200, ""},
	} {
		// cache and loadMemory change with each of them
		fields := fmt.Sprintf(`multimodal: {limits: image: 2, image: tokens: 70, loadMemory: "%dMiB", cache: "%dMiB"%s}`, 65+i, 17+i, c.fields)
		s.write(t, "rename", profileText(s.model, eyes+fields))
		if r := s.waitApplied(t, i+1); r.Class != string(schema.Live) || !strings.Contains(strings.Join(r.Changes, " "), "multimodal.cache") {
			t.Errorf("%+v", r)
		}
		if code, body := s.lookAt(t, image(c.url)); code != c.code || !strings.Contains(body, c.want) {
			t.Errorf("with %s: %d %s; want %d and %q", c.fields, code, body, c.code, c.want)
		}
	}
	// A structural field waits, while the live one beside it takes effect.
	s.write(t, "rename", profileText(s.model, eyes+strings.Replace(eyesMedia, "image: 2", "image: 1", 1)+`, maxSourcePixels: 3000}`))
	s.eventually(t, "both changes", func() bool { return len(s.outcomes(6)) == 2 })
	if code, body := s.look(t, "x", red, red); code != 200 {
		t.Errorf("the limit of the running engine: %d %s", code, body)
	}
	if code, body := s.lookAt(t, image(other)); code != 400 || !strings.Contains(body, "maxSourcePixels, 3000") {
		t.Errorf("the live field beside a structural one: %d %s", code, body)
	}
	stop()
	if s.engine() != first {
		t.Error("the engine is another one")
	}
	// A request of the loader before a change takes of the memory after it.
	requests, end := context.WithCancel(t.Context())
	held := chat.MediaRequest{Media: chat.Media{Kind: "image", At: "messages.0.content.0", URL: pngURL(t, 30, 20, color.RGBA{9, 9, 9, 255})}}
	if _, err := s.live.Load().loader.Load(requests, held); err != nil {
		t.Fatal(err)
	}
	s.write(t, "rename", profileText(s.model, eyes+`multimodal: {limits: image: 2, image: tokens: 70, loadMemory: "64KiB", cache: 0, fetchTimeout: image: "50ms"}`))
	s.eventually(t, "the change", func() bool { return s.live.Load().profile.Multimodal.LoadMemory == 64<<10 })
	if code, body := s.look(t, "x", red); code != 503 || !strings.Contains(body, "Other images take the memory") {
		t.Errorf("beside the image of a request before: %d %s", code, body)
	}
	end()
	s.eventually(t, "the memory", func() bool { code, _ := s.look(t, "x", red); return code == 200 })
}

// TestMediaSwap replaces the engine for a structural field of multimodal while prompts with images are
// streamed: no stream ends early or has other tokens. With the tag soak it takes every way.
func TestMediaSwap(t *testing.T) {
	if testing.Short() {
		t.Skip("not run: -short leaves it out, make test runs it")
	}
	for _, name := range mediaWays {
		way := ways[name]
		t.Run(name, func(t *testing.T) {
			s := seeingServer(t, `, reload: structural: "swap"`, byWay(way))
			red, blue := pngURL(t, 60, 40, color.RGBA{200, 10, 30, 255}), pngURL(t, 60, 40, color.RGBA{10, 30, 220, 255})
			stop, first := s.sightseers(t, mediaClients, red), s.engine()
			if code, body := s.look(t, "x", red, blue); code != 200 {
				t.Errorf("%d %s", code, body)
			}
			s.write(t, "rename", profileText(s.model, eyes+strings.Replace(eyesMedia, "image: 2", "image: 1", 1)+`}, reload: structural: "swap"`))
			if r := s.waitApplied(t, 1); r.Class != string(schema.Structural) || r.Way != string(way.Way) || !strings.Contains(strings.Join(r.Changes, " "), "multimodal.limits.image") {
				t.Errorf("%+v", r)
			}
			code, body := s.look(t, "x", red, blue)
			if code != 400 || !strings.Contains(body, "At most 1 image(s)") {
				t.Errorf("after the swap: %d %s", code, body)
			}
			stop()
			if s.engine() == first {
				t.Error("the engine is the same")
			}
			s.eventually(t, "the end of the swap", func() bool { return !s.swaps.running() })
		})
	}
}
