package chat

import (
	"context"
	"encoding/json"
	"strings"

	"vapp.dev/engine"
)

// Media names an image, a video or a sound of a message. It is loaded after all other checks
// of the request.
type Media struct {
	Kind string // image, video or audio; "": no model takes it
	URL  string // http, https, data or file; "": the item that an earlier request named UUID
	UUID string // the client's name of the item; "": none
	At   string // path in the body, for errors
	What string // part or block, and its type, for errors: part of type "image_url"
	// Fault is what is wrong with the part. Models that take the kind report it; the others
	// refuse the part first.
	Fault *Error
}

// MediaRequest is one item to load, with the options of its request.
type MediaRequest struct {
	Media
	ProcessorKwargs, MediaKwargs map[string]json.RawMessage
	// Encode returns the tokens of a text that is put into the prompt.
	Encode func(text string) ([]int32, error)
}

// MediaItem is a loaded item: the tokens that replace its placeholder in the prompt, and which
// of them the encoder's rows replace. An image has one span, a video one per frame.
type MediaItem struct {
	Tokens []int32
	Spans  []MediaSpan
	Hash   string // of the pixels and their processing; equal items have equal hashes
}

// MediaSpan is a run of tokens of one picture.
type MediaSpan struct {
	At, Len int // in the tokens of the item
	Value   any // input of the encoder, for Attach
}

// PromptItem is an item at its place in a prompt.
type PromptItem struct {
	Kind string
	At   int // its first token
	MediaItem
}

// Vision loads the media of a model that takes them. It may be used from any goroutine.
type Vision interface {
	// Limit returns the maximum number of items of a kind in one prompt, and the maximum that
	// the model supports; 0, 0 for kinds that it does not take.
	Limit(kind string) (most, supported int)
	// Placeholder returns what stands for an item in a prompt: the text that is put before the
	// texts of a message if the template takes strings, and the tokens that an item's own
	// replace, at least one.
	Placeholder(kind string) (text string, tokens []int32)
	// Load fetches, decodes and resizes an item. It holds memory until ctx ends, at most as
	// much as the server allows, and waits for it. Its errors are *Error.
	Load(ctx context.Context, r MediaRequest) (MediaItem, error)
	// Attach adds the items of a prompt to the engine's request for it.
	Attach(r *engine.Request, items []PromptItem)
}

// media returns the media of all messages, in order.
func (c *Conversation) media() []*Media {
	var out []*Media
	for i := range c.Messages {
		for _, p := range c.Messages[i].Parts {
			if p.Media != nil {
				out = append(out, p.Media)
			}
		}
	}
	return out
}

// refused returns the error of a model without vision.
func (m *Media) refused() *Error {
	return invalid("messages", "%s: the served model is not a multimodal model and takes no %s; for a model with a vision tower, set multimodal.limits in the profile.", m.At, m.What)
}

// checkMedia checks number, kind and URL of the media of a conversation. It loads nothing.
func checkMedia(c *Conversation, s *Settings) error {
	count := map[string]int{}
	for _, m := range c.media() {
		if s.Vision == nil || s.DialectPrompt && c.Template == "" {
			return m.refused()
		}
		if m.Kind == "" {
			return invalid("messages", "%s: the served model takes no %s.", m.At, m.What)
		}
		count[m.Kind]++
		most, supported := s.Vision.Limit(m.Kind)
		if n := count[m.Kind]; n > min(most, supported) {
			remedy := ""
			if n <= supported {
				remedy = " Set `--limit-mm-per-prompt` to increase this limit (multimodal.limits of the profile)."
			}
			return invalid(m.Kind, "At most %d %s(s) may be provided in one prompt.%s", min(most, supported), m.Kind, remedy)
		}
		if m.Fault != nil {
			return m.Fault
		}
		if err := m.checkURL(); err != nil {
			return err
		}
	}
	return nil
}

// checkURL refuses a URL that no server loads.
func (m *Media) checkURL() error {
	scheme, rest, is := strings.Cut(m.URL, ":")
	switch scheme = strings.ToLower(scheme); {
	case m.URL == "" && m.UUID != "":
	case m.URL == "":
		return Errorf(Malformed, m.At, "`%s` has neither a URL nor a uuid.", m.At)
	case !is || scheme != "http" && scheme != "https" && scheme != "data" && scheme != "file":
		return invalid("messages", "%s: The URL must be either a HTTP, data or file URL.", m.At)
	case scheme == "data":
		if head, _, _ := strings.Cut(rest, ","); !strings.HasSuffix(head, ";base64") {
			return Errorf(Unsupported, "messages", "%s: Only base64 data URLs are supported for now.", m.At)
		}
	}
	return nil
}

// textWithPlaceholders returns the content as one string: the placeholders of the media that
// the texts do not contain themselves, then the texts, joined by line ends.
func (m Message) textWithPlaceholders(vision Vision) (string, error) {
	text := m.text()
	counts, kinds := map[string]int{}, []string{}
	for _, p := range m.Parts {
		if p.Media != nil {
			if counts[p.Media.Kind]++; counts[p.Media.Kind] == 1 {
				kinds = append(kinds, p.Media.Kind)
			}
		}
	}
	var lines []string
	for _, kind := range kinds {
		mark, _ := vision.Placeholder(kind)
		missing := counts[kind] - strings.Count(text, mark)
		if missing < 0 {
			return "", invalid("messages", "Found more '%s' placeholders in input prompt than actual multimodal data items.", mark)
		}
		for range missing {
			lines = append(lines, mark)
		}
	}
	if len(lines) == 0 {
		return text, nil
	}
	return strings.Join(append(lines, text), "\n"), nil
}
