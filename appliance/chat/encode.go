package chat

import (
	"context"
	"encoding/json"
	"errors"
	"unicode/utf8"

	"vapp.dev/engine/tokenizer"
)

// Encoding encodes one text window by window; tokenizer.Encoding is one.
type Encoding interface {
	// Done reports whether the whole text is encoded.
	Done() bool
	// Next appends the ids of the next window.
	Next(ids []int32) ([]int32, error)
}

// tokenLimit selects the ids that encodeText returns: at most the first most ids, or with
// last the last ones. With only, encoding stops as soon as there are more than most.
type tokenLimit struct {
	most int
	last bool
	only bool
}

// encodeText returns the ids of a text that k selects, and the number of all its ids. It
// encodes all texts of requests, window by window, each with a text worker; ctx can end it
// between windows. Callers check the length of the text first, with checkLength.
func (s *Service) encodeText(ctx context.Context, text string, addSpecial bool, k tokenLimit) (ids []int32, n int, err error) {
	e := s.cfg.Text.Encoding(text, addSpecial)
	ids = []int32{}
	for !e.Done() {
		if err := s.workers.acquire(ctx, len(text) > tokenizer.Window); err != nil {
			return nil, 0, err
		}
		had := len(ids)
		ids, err = e.Next(ids)
		s.workers.release()
		if err != nil {
			return nil, 0, textError(err)
		}
		n += len(ids) - had
		switch {
		case k.only && n > k.most:
			return nil, n, nil
		case !k.last:
			ids = ids[:min(len(ids), k.most)]
		case len(ids) > 2*k.most && !e.Done():
			ids = ids[:copy(ids, ids[len(ids)-k.most:])]
		}
	}
	return ids[max(0, len(ids)-k.most):], n, nil
}

// textError returns the client error for a text that the tokenizer refuses.
func textError(err error) error {
	var e *tokenizer.Error
	if errors.As(err, &e) && e.Kind == tokenizer.KindLength {
		return Errorf(TooLong, "input_text", "The text cannot be tokenized in parts: %s. Please break it up with spaces or line breaks, or shorten it.", e.Msg)
	}
	return invalid("", "The text cannot be tokenized: %v.", err)
}

// maxText returns the maximum characters of a text of a request. A longer text exceeds the
// model's context however it is tokenized.
func (s *Service) maxText() int { return s.cfg.ModelLen * s.maxRunes }

// checkLength refuses a text that is longer than maxText, before encoding, which would take
// time. It also applies to texts without a token limit, which are truncated or only
// counted.
func (s *Service) checkLength(text string) error {
	most := s.maxText()
	if len(text) <= most {
		return nil
	}
	if n := utf8.RuneCountInString(text); n > most {
		return Errorf(TooLong, "input_text", "The text contains %d characters, more than %d characters, which is the upper bound for the model's maximum context length of %d tokens. Please reduce the length of the text.",
			n, most, s.cfg.ModelLen)
	}
	return nil
}

// maxRendered bounds a conversation, in multiples of its longest possible prompt: its
// template may leave parts of it out.
const maxRendered = 4

// checkConversationLength refuses a conversation whose texts together are too long, before it
// is rendered.
func (s *Service) checkConversationLength(c *Conversation) error {
	most, n := maxRendered*s.maxText(), 0
	for i := range c.Messages {
		n += c.Messages[i].size()
	}
	for _, list := range [][]json.RawMessage{c.Tools, c.Documents} {
		for _, b := range list {
			n += len(b)
		}
	}
	if n > most {
		return Errorf(TooLong, "input_text", "The messages contain %d bytes of text, more than %d bytes, which is %d times the upper bound for the model's maximum context length of %d tokens. Please reduce the length of the messages.",
			n, most, maxRendered, s.cfg.ModelLen)
	}
	return nil
}
