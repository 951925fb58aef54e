package load

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"vapp.dev/appliance/chat"
	"vapp.dev/appliance/media"
	"vapp.dev/appliance/media/fetch"
	"vapp.dev/engine/vision"
)

// failure returns an error of a package below as the client's, with vLLM's status.
func failure(err error, of chat.Media) error {
	var own *chat.Error
	if errors.As(err, &own) {
		return own
	}
	kind, text := chat.Invalid, err.Error()
	var f *fetch.Error
	var m *media.Error
	var s *vision.SizeError
	var c *vision.ConfigError
	switch {
	case errors.As(err, &f):
		kind, text = map[fetch.Reason]chat.Kind{
			fetch.Refused: chat.Invalid, fetch.Unprocessable: chat.Unprocessable, fetch.Unsupported: chat.Unsupported, fetch.Failed: chat.Unreachable,
		}[f.Reason], f.Message
	case errors.As(err, &m):
		text = "Failed to load " + of.Kind + ": " + strings.TrimPrefix(m.Error(), "image: ")
	case errors.As(err, &s), errors.As(err, &c):
	case errors.Is(err, context.DeadlineExceeded):
		kind, text = chat.Unprocessable, "Failed to fetch media from URL: it took longer than multimodal.fetchTimeout."
	default:
		return &chat.Error{Kind: chat.Internal, Param: "messages", Message: fmt.Sprintf("%s: the %s could not be loaded", of.At, of.Kind), Cause: err}
	}
	return &chat.Error{Kind: kind, Param: "messages", Message: of.At + ": " + strings.TrimSuffix(text, ".") + ".", Cause: errors.Unwrap(err)}
}

// trusted refuses options of requests unless the profile allows them.
func (l *Loader) trusted(r chat.MediaRequest) error {
	for name, given := range map[string]map[string]json.RawMessage{"mm_processor_kwargs": r.ProcessorKwargs, "media_io_kwargs": r.MediaKwargs} {
		if len(given) > 0 && !l.c.TrustKwargs {
			return chat.Errorf(chat.Invalid, name, "%s is not allowed here; set multimodal.trustRequestKwargs in the profile.", name)
		}
	}
	return nil
}

// rule returns the rule for an image, and its options as one text.
func (l *Loader) rule(r chat.MediaRequest) (vision.Rule, string, error) {
	if _, has := r.MediaKwargs["image"]; has {
		return nil, "", chat.Errorf(chat.Invalid, "media_io_kwargs", "media_io_kwargs.image: images are read in one way: without alpha, over white.")
	}
	if len(r.ProcessorKwargs) == 0 {
		return l.c.Rule, "", nil
	}
	rule, err := l.c.Rule.With(r.ProcessorKwargs)
	if err != nil {
		return nil, "", kwargsError(err)
	}
	options, err := json.Marshal(r.ProcessorKwargs) // its keys are sorted
	return rule, string(options), err
}

func kwargsError(err error) error {
	return &chat.Error{Kind: chat.Invalid, Param: "mm_processor_kwargs", Message: "mm_processor_kwargs: " + err.Error(), Cause: err}
}

// short returns the start of a text.
func short(s string) string {
	if r := []rune(s); len(r) > 40 {
		return string(r[:40]) + "…"
	}
	return s
}
