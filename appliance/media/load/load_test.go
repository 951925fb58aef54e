package load

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"image"
	"image/color"
	"image/png"
	"runtime"
	"strings"
	"testing"
	"time"

	"vapp.dev/appliance/chat"
	"vapp.dev/engine"
	"vapp.dev/engine/vision"
)

// small returns a Loader of Gemma 4's rule with patches of 4 × 4 pixels; change sets its options.
func small(t testing.TB, change func(*Config)) *Loader {
	t.Helper()
	p, err := vision.Read(vision.Files{Image: []byte(`{"image_processor_type": "Gemma4ImageProcessor", "patch_size": 4, "pooling_kernel_size": 3, "max_soft_tokens": 70}`)})
	if err != nil {
		t.Fatal(err)
	}
	c := Config{
		Rule: p.Image, Tokens: Tokens{Text: "<image>", Row: 7, Before: []int32{5}, After: []int32{6}}, Limits: map[string]int{"image": 4}, MaxTokens: 70,
		Timeout: time.Minute, Pixels: 1 << 20, Memory: 16 << 20, Cache: 1 << 20,
	}
	if change != nil {
		change(&c)
	}
	l, err := New(c, new(Memory))
	if err != nil {
		t.Fatal(err)
	}
	l.memory.Use(l)
	return l
}

// grey returns a request for an image of one grey.
func grey(t testing.TB, width, height int, c uint8) chat.MediaRequest {
	t.Helper()
	m := image.NewGray(image.Rect(0, 0, width, height))
	for i := range m.Pix {
		m.Pix[i] = c
	}
	m.SetGray(0, 0, color.Gray{255})
	var b bytes.Buffer
	if err := png.Encode(&b, m); err != nil {
		t.Fatal(err)
	}
	return chat.MediaRequest{Media: chat.Media{Kind: "image", At: "messages.0.content.0", URL: "data:image/png;base64," + base64.StdEncoding.EncodeToString(b.Bytes())}}
}

func load(t *testing.T, l *Loader, r chat.MediaRequest) (chat.MediaItem, *picture) {
	t.Helper()
	m, err := l.Load(t.Context(), r)
	if err != nil {
		t.Fatal(err)
	}
	return m, m.Spans[0].Value.(attached).picture
}

// TestLoad loads an image: its tokens stand between those around it, and it becomes an item of the
// engine's request.
func TestLoad(t *testing.T) {
	l := small(t, nil)
	r := grey(t, 90, 60, 9)
	r.UUID = "mine"
	m, p := load(t, l, r)
	n := len(m.Tokens)
	if n < 10 || m.Tokens[0] != 5 || m.Tokens[1] != 7 || m.Tokens[n-2] != 7 || m.Tokens[n-1] != 6 || m.Spans[0].At != 1 || m.Spans[0].Len != n-2 || p.tokens != n-2 {
		t.Fatalf("tokens %v, spans %v", m.Tokens, m.Spans)
	}
	var q engine.Request
	l.Attach(&q, []chat.PromptItem{{Kind: "image", At: 10, MediaItem: m}})
	i := q.Items[0]
	if i.At != 11 || i.Tokens != n-2 || i.Hash != p.hash || i.Name != "mine" || len(i.Pixels) != 48*len(i.Across) || len(i.Across) != 9*i.Tokens || len(i.Down) != len(i.Across) {
		t.Errorf("item at %d with %d tokens, %d numbers, %d patches", i.At, i.Tokens, len(i.Pixels), len(i.Across))
	}
	other, _ := load(t, l, grey(t, 90, 60, 10))
	if other.Hash == m.Hash {
		t.Error("another image has the same hash")
	}
}

// TestKept: equal data are decoded once, a uuid names an image that is kept, and the least recently
// used leave.
func TestKept(t *testing.T) {
	l := small(t, func(c *Config) { c.Cache = 1 << 18 })
	r := grey(t, 90, 60, 9)
	r.UUID = "mine"
	_, p := load(t, l, r)
	if _, again := load(t, l, r); again != p {
		t.Error("equal data were decoded twice")
	}
	byName := chat.MediaRequest{Media: chat.Media{Kind: "image", At: "at", UUID: "mine"}}
	if _, again := load(t, l, byName); again != p {
		t.Error("the uuid names another image")
	}
	unknown := byName
	unknown.UUID = "yours"
	var e *chat.Error
	if _, err := l.Load(t.Context(), unknown); !errors.As(err, &e) || e.Kind != chat.Invalid || !strings.Contains(e.Message, `"yours"`) {
		t.Errorf("an unknown uuid: %v", err)
	}
	for c := range uint8(20) {
		load(t, l, grey(t, 90, 60, 100+c))
	}
	if l.cache.bytes > l.c.Cache || l.cache.order.Len() != len(l.cache.byKey) || len(l.cache.names) != 0 {
		t.Errorf("%d bytes of %d, %d images, %d keys, %d names", l.cache.bytes, l.c.Cache, l.cache.order.Len(), len(l.cache.byKey), len(l.cache.names))
	}
	if _, err := l.Load(t.Context(), byName); err == nil {
		t.Error("an image that left is found by its uuid")
	}
}

// TestMemory: memory is held until the request ends and no longer, also after errors, and a wait that is too
// long ends with an error.
func TestMemory(t *testing.T) {
	l := small(t, func(c *Config) { c.Memory, c.Cache, c.Timeout = 80_000, 0, 50*time.Millisecond })
	ctx, end := context.WithCancel(t.Context())
	if _, err := l.Load(ctx, grey(t, 90, 60, 9)); err != nil {
		t.Fatal(err)
	}
	var e *chat.Error
	if _, err := l.Load(t.Context(), grey(t, 90, 60, 10)); !errors.As(err, &e) || e.Kind != chat.Overloaded {
		t.Errorf("beside another image: %v", err)
	}
	end()
	l.memory.empty(t)
	if _, err := l.Load(t.Context(), grey(t, 900, 600, 9)); !errors.As(err, &e) || e.Kind != chat.Invalid || !strings.Contains(e.Message, "loadMemory") {
		t.Errorf("an image that never fits: %v", err)
	}
	l.memory.empty(t)
}

// TestMemoryShared: the Loader in use and those before it take one bound together, that of the one in use, and only its
// images are kept. An item that no longer fits is refused, and those behind it are served.
func TestMemoryShared(t *testing.T) {
	old := small(t, func(c *Config) { c.Memory, c.Timeout = 80_000, 50*time.Millisecond })
	config := old.c
	m := old.memory
	requests, end := context.WithCancel(t.Context())
	named := grey(t, 90, 60, 9)
	named.UUID = "mine"
	if _, err := old.Load(requests, named); err != nil {
		t.Fatal(err)
	}
	next, err := New(config, m)
	if err != nil {
		t.Fatal(err)
	}
	var e *chat.Error
	m.Use(next)
	if _, err := next.Load(t.Context(), grey(t, 90, 60, 10)); !errors.As(err, &e) || e.Kind != chat.Overloaded {
		t.Errorf("beside an image of the loader before: %v", err)
	}
	end()
	m.empty(t)
	requests, end = context.WithCancel(t.Context())
	load(t, next, grey(t, 90, 60, 10))
	if _, err := old.Load(requests, grey(t, 90, 60, 11)); !errors.As(err, &e) || e.Kind != chat.Overloaded {
		t.Errorf("of the loader before, beside an image: %v", err)
	}
	if old.cache.bytes != 0 || old.cache.order.Len() != 0 || len(old.cache.names) != 0 || next.cache.bytes == 0 {
		t.Errorf("the loader before keeps %d bytes, that in use %d", old.cache.bytes, next.cache.bytes)
	}
	end()

	// What waits is served in order, and refused once it can never fit.
	m = &Memory{most: 100, taken: 60}
	answers := make(chan string, 3)
	wait := func(name string, n, holds int64) {
		m.mu.Lock()
		before := len(m.waiting)
		m.mu.Unlock()
		go func() {
			err := m.take(t.Context(), n, holds)
			answers <- fmt.Sprint(name, " ", err != nil)
		}()
		for waits := before; waits == before; runtime.Gosched() {
			m.mu.Lock()
			waits = len(m.waiting)
			m.mu.Unlock()
		}
	}
	wait("first", 50, 40)
	wait("second", 40, 0)
	m.give(5)
	if len(m.waiting) != 2 || m.taken != 55 {
		t.Errorf("%d wait, %d bytes are taken: the second one passes the first", len(m.waiting), m.taken)
	}
	m.Use(&Loader{c: Config{Memory: 80}, memory: m, cache: newCache()})
	if got := <-answers; got != "first true" {
		t.Error(got)
	}
	m.give(15)
	if got := <-answers; got != "second false" || m.taken != 80 {
		t.Errorf("%s, %d bytes are taken", got, m.taken)
	}
}

// empty waits until nothing is taken: the end of a request gives back in a goroutine of its own.
func (m *Memory) empty(t *testing.T) {
	t.Helper()
	for i := 0; ; i++ {
		m.mu.Lock()
		taken, waiting := m.taken, len(m.waiting)
		m.mu.Unlock()
		if taken == 0 && waiting == 0 {
			return
		}
		if i > 10_000 {
			t.Fatalf("%d bytes are taken after the end of the requests, %d wait", taken, waiting)
		}
		time.Sleep(time.Millisecond)
	}
}

// TestRefused: what is wrong is refused in one line, before pixels are allocated.
func TestRefused(t *testing.T) {
	l := small(t, func(c *Config) { c.MaxTokens, c.TrustKwargs = 70, true })
	untrusting := small(t, nil)
	with := func(name, value string) chat.MediaRequest {
		r := grey(t, 90, 60, 9)
		r.ProcessorKwargs = map[string]json.RawMessage{name: json.RawMessage(value)}
		return r
	}
	io := grey(t, 90, 60, 9)
	io.MediaKwargs = map[string]json.RawMessage{"image": json.RawMessage(`{}`)}
	video := grey(t, 9, 9, 9)
	video.Kind = "video"
	for name, c := range map[string]struct {
		l    *Loader
		r    chat.MediaRequest
		want string
	}{
		"kwargs without trust": {untrusting, with("max_soft_tokens", "70"), "trustRequestKwargs"},
		"a budget of the plan": {l, with("max_soft_tokens", "280"), "at most 70 an image"},
		"an unknown budget":    {l, with("max_soft_tokens", "71"), "mm_processor_kwargs"},
		"an unknown option":    {l, with("colour", "1"), "mm_processor_kwargs"},
		"media_io_kwargs":      {l, io, "media_io_kwargs.image"},
		"a video":              {l, video, "takes no"},
		"too many pixels":      {l, grey(t, 1025, 1025, 9), "maxSourcePixels"},
		"not an image":         {l, chat.MediaRequest{Media: chat.Media{Kind: "image", URL: "data:image/png;base64,aGVsbG8="}}, "Failed to load image"},
	} {
		var e *chat.Error
		if _, err := c.l.Load(t.Context(), c.r); !errors.As(err, &e) || !strings.Contains(e.Message, c.want) || strings.Contains(e.Message, "\n") {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
}
