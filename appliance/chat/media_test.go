package chat

import (
	"context"
	"fmt"
	"reflect"
	"testing"

	"vapp.dev/engine"
)

// twoKinds is a vision whose images are three tokens with one span, and whose videos two
// frames of one token each. Placeholders are 90 for images, 91 92 for videos.
type twoKinds struct{}

func (twoKinds) Limit(string) (most, supported int)   { return 9, 9 }
func (twoKinds) Attach(*engine.Request, []PromptItem) {}
func (twoKinds) Placeholder(kind string) (string, []int32) {
	if kind == "video" {
		return "<video>", []int32{91, 92}
	}
	return "<image>", []int32{90}
}

func (twoKinds) Load(_ context.Context, r MediaRequest) (MediaItem, error) {
	if r.Kind == "video" {
		return MediaItem{Tokens: []int32{1, 8, 1, 8}, Hash: r.URL, Spans: []MediaSpan{{At: 1, Len: 1}, {At: 3, Len: 1}}}, nil
	}
	return MediaItem{Tokens: []int32{2, 7, 7, 3}, Hash: r.URL, Spans: []MediaSpan{{At: 1, Len: 2}}}, nil
}

// Each kind's placeholders are replaced in the order of its own items; spans count from the
// item's start.
func TestWithMedia(t *testing.T) {
	chat := func(kinds ...string) *Conversation {
		var parts []Part
		for i, k := range kinds {
			parts = append(parts, Part{Media: &Media{Kind: k, URL: fmt.Sprint(i)}})
		}
		return &Conversation{Messages: []Message{{Parts: parts}}}
	}
	for _, c := range []struct {
		chat  *Conversation
		ids   []int32
		want  []int32
		spans string
	}{
		{chat("image"), []int32{90}, []int32{2, 7, 7, 3}, "[image 1+2 0]"},
		{chat("image", "video", "image"), []int32{5, 91, 92, 90, 6, 90, 5}, []int32{5, 1, 8, 1, 8, 2, 7, 7, 3, 6, 2, 7, 7, 3, 5}, "[video 2+1 1 video 4+1 1 image 6+2 0 image 11+2 2]"},
		{chat("video"), []int32{91, 91, 92, 92}, []int32{91, 1, 8, 1, 8, 92}, "[video 2+1 0 video 4+1 0]"},
		{chat("image"), []int32{90, 90}, nil, "[]"},
		{chat("image", "image"), []int32{90}, nil, "[]"},
		{chat("image"), []int32{5}, nil, "[]"},
		{chat(), []int32{90}, []int32{90}, "[]"}, // without items it is a token like others
	} {
		got, items, err := (&Service{}).WithMedia(t.Context(), c.chat, &Settings{Vision: twoKinds{}}, c.ids)
		spans := []string{}
		for _, i := range items {
			for _, p := range i.Spans {
				spans = append(spans, fmt.Sprintf("%s %d+%d %s", i.Kind, i.At+p.At, p.Len, i.Hash))
			}
		}
		if !reflect.DeepEqual(got, c.want) || fmt.Sprint(spans) != c.spans || (err != nil) != (c.want == nil) {
			t.Errorf("%v: %v %v %v, want %v %v", c.ids, got, spans, err, c.want, c.spans)
		}
	}
}
