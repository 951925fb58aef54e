package load

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"vapp.dev/appliance/chat"
	"vapp.dev/engine"
	"vapp.dev/engine/vision"
)

// filming is small with Qwen's rule for videos: items of two frames, of patches of 4 × 4 pixels.
func filming(t testing.TB, change func(*Config)) *Loader {
	t.Helper()
	return small(t, func(c *Config) {
		p, err := vision.Read(vision.Files{
			Image: []byte(`{"image_processor_type": "Qwen2VLImageProcessor", "patch_size": 4, "image_mean": 0.5, "image_std": 0.5}`),
			Video: []byte(`{"patch_size": 4, "size": {"shortest_edge": 256, "longest_edge": 9000}, "image_mean": 0.5, "image_std": 0.5}`),
		})
		if err != nil {
			t.Fatal(err)
		}
		c.Video, c.VideoTokens, c.Frames, c.VideoTimeout, c.TrustKwargs = p.Video, Tokens{Row: 8, Before: []int32{5}, After: []int32{6}}, 5, c.Timeout, true
		if change != nil {
			change(c)
		}
	})
}

// film returns a request for frames of these greys, of 48 × 32 pixels.
func film(t testing.TB, greys ...uint8) chat.MediaRequest {
	t.Helper()
	var frames []string
	for _, c := range greys {
		frames = append(frames, strings.TrimPrefix(grey(t, 48, 32, c).URL, "data:image/png;base64,"))
	}
	// The tokens of a label are its digits.
	return chat.MediaRequest{Media: chat.Media{Kind: "video", At: "at", URL: "data:Video/JPEG;base64," + strings.Join(frames, ",")}, Encode: func(text string) (ids []int32, _ error) {
		for _, c := range text {
			if c >= '0' && c <= '9' {
				ids = append(ids, 100+c-'0')
			}
		}
		return ids, nil
	}}
}

func with(r chat.MediaRequest, kwargs, media string) chat.MediaRequest {
	if err := errors.Join(json.Unmarshal([]byte(kwargs), &r.ProcessorKwargs), json.Unmarshal([]byte(media), &r.MediaKwargs)); err != nil {
		panic(err)
	}
	return r
}

// TestVideo loads frames: each pair stands behind its label and is an item of the engine's request.
// Equal pairs have equal hashes.
func TestVideo(t *testing.T) {
	l := filming(t, nil)
	load := func(r chat.MediaRequest) (chat.MediaItem, string) {
		t.Helper()
		m, err := l.Load(t.Context(), r)
		if err != nil {
			t.Fatal(err)
		}
		var labels []string
		at := 0
		for _, s := range m.Spans {
			labels = append(labels, fmt.Sprint(m.Tokens[at:s.At-1]))
			if m.Tokens[s.At-1] != 5 || m.Tokens[s.At] != 8 || m.Tokens[s.At+s.Len-1] != 8 || m.Tokens[s.At+s.Len] != 6 {
				t.Errorf("tokens %v, span %d+%d", m.Tokens, s.At, s.Len)
			}
			at = s.At + s.Len + 1
		}
		if at != len(m.Tokens) {
			t.Errorf("%d tokens behind the last frame", len(m.Tokens)-at)
		}
		return m, strings.Join(labels, " ")
	}
	m, labels := load(film(t, 9, 10, 9, 10, 11))
	if labels != "[100 105] [102 105] [104 100]" { // 0.5, 2.5 and 4.0 seconds: the last frame stands for the absent one
		t.Errorf("labels %s", labels)
	}
	var q engine.Request
	l.Attach(&q, []chat.PromptItem{{Kind: "video", At: 10, MediaItem: m}})
	a, b, c := q.Items[0], q.Items[1], q.Items[2]
	if a.Hash != b.Hash || a.Hash == c.Hash || a.Name == "" || a.Name != c.Name || b.At != 10+m.Spans[1].At || b.Tokens != m.Spans[1].Len ||
		len(a.Across) != 4*a.Tokens || len(a.Pixels) != 96*len(a.Across) {
		t.Errorf("items of %d, %d, %d tokens at %d, %d, %d, named %q, %q", a.Tokens, b.Tokens, c.Tokens, a.At, b.At, c.At, a.Name, c.Name)
	}
	again, _ := load(film(t, 9, 10, 9, 10, 11, 12, 13)) // as in vLLM, what is behind the most frames is left out
	if again.Hash != m.Hash || again.Spans[0].Value.(attached).picture != m.Spans[0].Value.(attached).picture {
		t.Error("equal frames were decoded twice")
	}
	if other, _ := load(film(t, 9, 10)); other.Hash == m.Hash {
		t.Error("another video has the same hash")
	}
	for io, want := range map[string]string{
		`{"fps": 2}`:        "[100 102] [101 102] [102 100]",
		`{"num_frames": 2}`: "[100 105]",
		`{"num_frames": 2, "frames_indices": [4, 10]}`:          "[107 100]",
		`{"fps": 4, "do_sample_frames": true}`:                  "[100 101] [100 109]", // four of five: 0, 1, 3, 4
		`{"total_num_frames": 9, "duration": 9, "fps": 1}`:      "[100 105] [102 105] [104 100]",
		`{"frames_indices": [0, 2, 4, 6, 8], "num_frames": 5}`:  "[101 100] [105 100] [108 100]",
		`{"do_sample_frames": false, "total_num_frames": 1000}`: "[100 105] [102 105] [104 100]",
	} {
		if _, got := load(with(film(t, 9, 10, 9, 10, 11), `{}`, `{"video": `+io+`}`)); got != want {
			t.Errorf("%s: labels %s, want %s", io, got, want)
		}
	}
}

// TestPicks samples animations of 100 frames, ten a second, by Qwen's rule.
func TestPicks(t *testing.T) {
	l := filming(t, nil)
	for _, c := range []struct{ kwargs, io, want string }{
		{`{}`, `{}`, "[0 25 50 74 99]"}, // two a second are 20, at most 5
		{`{}`, `{"fps": 0.2}`, "[0 33 66 99]"},
		{`{"num_frames": 3}`, `{}`, "[0 50 99]"},
		{`{"do_sample_frames": false}`, `{"num_frames": 2}`, "[0 99]"},
		{`{}`, `{"duration": 3}`, "duration describes the frames of data:video/jpeg"},
	} {
		o, _, err := l.videoOptions(with(chat.MediaRequest{}, c.kwargs, `{"video": `+c.io+`}`))
		if err != nil {
			t.Fatal(err)
		}
		got, err := o.picks(100, 10)
		if text := fmt.Sprint(got, err); !strings.Contains(text, c.want) {
			t.Errorf("%s, %s: %s, want %s", c.kwargs, c.io, text, c.want)
		}
	}
}

// TestVideoRefused: what is wrong is refused in one line.
func TestVideoRefused(t *testing.T) {
	l := filming(t, nil)
	five := film(t, 9, 10, 11, 12, 13)
	io := func(kwargs string) chat.MediaRequest { return with(five, `{}`, `{"video": `+kwargs+`}`) }
	still := film(t, 9)
	still.URL = grey(t, 48, 32, 9).URL
	large := film(t, 9, 9)
	large.ProcessorKwargs = map[string]json.RawMessage{"max_pixels": json.RawMessage("9000000"), "min_pixels": json.RawMessage("8000000")}
	for name, c := range map[string]struct {
		l    *Loader
		r    chat.MediaRequest
		want string
	}{
		"one frame":            {l, film(t, 9), "a video of 1 frames; from 2 to 8192 are supported"},
		"a frame of many":      {l, large, "tokens, and the server is planned for at most 70 an image"},
		"a still image":        {l, still, "at: Failed to load video: it is a PNG image; GIF and WebP are read."},
		"no video in the plan": {filming(t, func(c *Config) { c.Video = nil }), five, "takes no"},
		"without trust":        {filming(t, func(c *Config) { c.TrustKwargs = false }), io(`{"fps": 2}`), "trustRequestKwargs"},
		"an unknown option":    {l, io(`{"backend": "opencv"}`), "media_io_kwargs.video: backend is not an option"},
		"no object":            {l, io(`3`), "media_io_kwargs.video must be an object"},
		"num_frames":           {l, io(`{"num_frames": -1}`), "num_frames must be from 1 to 5, multimodal.video.frames"},
		"fps":                  {l, io(`{"fps": 0}`), "fps must be a positive number"},
		"frames_indices":       {l, io(`{"frames_indices": [1]}`), "frames_indices length (1) must match number of frames sent (5)"},
		"an index":             {l, io(`{"frames_indices": [-1, 0, 1, 2, 3]}`), "frames_indices has -1"},
		"total_num_frames":     {l, io(`{"total_num_frames": 4}`), "total_num_frames (4) must be >= number of frames sent (5)"},
		"sampling":             {l, io(`{"total_num_frames": 9, "do_sample_frames": true}`), "do_sample_frames needs all frames"},
		"kwargs":               {l, with(five, `{"num_frames": "x"}`, `{}`), "mm_processor_kwargs: "},
		"too much memory":      {filming(t, func(c *Config) { c.Memory = 20_000 }), five, "loadMemory"},
	} {
		var e *chat.Error
		if _, err := c.l.Load(t.Context(), c.r); !errors.As(err, &e) || !strings.Contains(e.Message, c.want) || strings.Contains(e.Message, "\n") {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
}

// FuzzVideoOptions reads options of requests for a video.
func FuzzVideoOptions(f *testing.F) {
	l, r := filming(f, nil), film(f, 9, 10, 11, 12)
	for _, s := range [][2]string{
		{`{"fps": 1, "do_sample_frames": true}`, `{"num_frames": 3}`}, {`{"videos_kwargs": {"num_frames": 2}}`, `{"fps": 1e5, "do_sample_frames": true}`},
		{`{"max_pixels": 1}`, `{"frames_indices": [0, 3, 7, 9], "total_num_frames": 12, "duration": 0.5}`}, {`{}`, `{"frames_indices": null, "fps": null}`},
	} {
		f.Add(s[0], s[1])
	}
	f.Fuzz(func(t *testing.T, kwargs, io string) {
		r := r
		r.ProcessorKwargs, r.MediaKwargs = nil, map[string]json.RawMessage{"video": json.RawMessage(io)}
		if !json.Valid([]byte(io)) || json.Unmarshal([]byte(kwargs), &r.ProcessorKwargs) != nil {
			return
		}
		m, err := l.Load(t.Context(), r)
		var e *chat.Error
		if err != nil && (!errors.As(err, &e) || e.Kind == chat.Internal || strings.Contains(e.Message, "\n")) || err == nil && len(m.Spans) == 0 {
			t.Errorf("%d frames, %v", len(m.Spans), err)
		}
	})
}
