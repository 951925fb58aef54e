package chat

import "context"

// TokenizeParams are the parameters of a request for the tokens of a text or, if Chat is
// set, of a rendered conversation.
type TokenizeParams struct {
	Model            string
	Text             string
	Chat             *Conversation
	AddSpecialTokens bool
	Strings          bool // also return the vocabulary's spelling of each token
	CountOnly        bool // return neither tokens nor strings
}

// Tokenized is the result of Tokenize; Strings is nil unless requested.
type Tokenized struct {
	Count   int
	Tokens  []int32
	Strings []string
}

// maxTokenized bounds the tokens of a reply, in multiples of the model's context.
const maxTokenized = 4

// Tokenize encodes a text as a request would. Its errors are *Error.
func (s *Service) Tokenize(ctx context.Context, a TokenizeParams, set *Settings) (Tokenized, error) {
	if _, err := set.Name(a.Model); err != nil {
		return Tokenized{}, err
	}
	p := Prompt{Text: a.Text}
	if a.Chat != nil {
		if err := CheckConversation(a.Chat, set); err != nil {
			return Tokenized{}, err
		}
		var err error
		if p.Text, err = s.render(ctx, a.Chat, set); err != nil {
			return Tokenized{}, AsError(err)
		}
	}
	out := Tokenized{Tokens: []int32{}}
	if p.Text != "" {
		var err error
		if err = s.checkLength(p.Text); err != nil {
			return Tokenized{}, err
		}
		k := tokenLimit{most: maxTokenized * s.cfg.ModelLen, only: true}
		if a.CountOnly {
			k = tokenLimit{most: s.cfg.ModelLen}
		}
		if out.Tokens, out.Count, err = s.encode(ctx, p, a.AddSpecialTokens, a.Chat != nil, k); err != nil {
			return Tokenized{}, AsError(err)
		}
		if k.only && out.Count > k.most {
			return Tokenized{}, tooMany("The text has", k.most, s.cfg.ModelLen)
		}
		if a.Chat != nil && len(a.Chat.media()) > 0 {
			if out.Count > s.cfg.ModelLen { // out.Tokens may be cut
				return Tokenized{}, Errorf(TooLong, "input_tokens", "The text has %d tokens without its images, more than the model's maximum context length of %d tokens. Please shorten it.", out.Count, s.cfg.ModelLen)
			}
			if out.Tokens, _, err = s.WithMedia(ctx, a.Chat, set, out.Tokens); err != nil {
				return Tokenized{}, AsError(err)
			}
			out.Count = len(out.Tokens)
		}
	}
	if a.CountOnly {
		return Tokenized{Count: out.Count}, nil
	}
	if a.Strings {
		out.Strings = make([]string, len(out.Tokens))
		for i, id := range out.Tokens {
			out.Strings[i] = s.cfg.Vocabulary.Token(id)
		}
	}
	return out, nil
}

// Detokenize returns the text of tokens, including special ones. Its errors are *Error.
func (s *Service) Detokenize(model string, ids []int32, set *Settings) (string, error) {
	if _, err := set.Name(model); err != nil {
		return "", err
	}
	if err := s.inVocabulary("tokens", ids); err != nil {
		return "", err
	}
	if most := maxTokenized * s.cfg.ModelLen; len(ids) > most {
		return "", tooMany("`tokens` has", most, s.cfg.ModelLen)
	}
	bytes := 0
	for _, id := range ids {
		bytes += len(s.cfg.Vocabulary.TokenBytes(id))
	}
	if bytes > maxDecoded {
		return "", Errorf(TooLong, "tokens", "The text of `tokens` has %d bytes, more than %d bytes. Please send them in parts.", bytes, maxDecoded)
	}
	text, err := s.cfg.Text.Decode(ids, false)
	if err != nil {
		return "", AsError(err)
	}
	return text, nil
}

// maxDecoded bounds the text of a reply, in bytes.
const maxDecoded = 16 << 20

// tooMany returns the error for more tokens than maxTokenized allows.
func tooMany(what string, most, modelLen int) error {
	return Errorf(TooLong, "input_tokens", "%s more than %d tokens, which is %d times the model's maximum context length of %d tokens. Please send it in parts.",
		what, most, maxTokenized, modelLen)
}

// inVocabulary refuses ids outside the vocabulary.
func (s *Service) inVocabulary(param string, ids []int32) error {
	size := s.cfg.Vocabulary.VocabSize()
	for _, id := range ids {
		if id < 0 || int(id) >= size {
			return invalid(param, "Token id %d is out of vocabulary: ids must be in 0..%d.", id, size-1)
		}
	}
	return nil
}

// Rendered is the prompt of a conversation.
type Rendered struct {
	Text   string
	Tokens []int32
}

// Render returns the prompt of a conversation as a request would render it. Its errors are
// *Error.
func (s *Service) Render(ctx context.Context, c *Conversation, set *Settings) (Rendered, error) {
	if err := CheckConversation(c, set); err != nil {
		return Rendered{}, err
	}
	text, err := s.render(ctx, c, set)
	if err != nil {
		return Rendered{}, AsError(err)
	}
	if err := s.checkLength(text); err != nil {
		return Rendered{}, err
	}
	ids, _, err := s.encode(ctx, Prompt{Text: text}, false, true, tokenLimit{most: s.maxText()})
	if err != nil {
		return Rendered{}, AsError(err)
	}
	if ids, _, err = s.WithMedia(ctx, c, set, ids); err != nil {
		return Rendered{}, AsError(err)
	}
	return Rendered{text, ids}, nil
}

// RenderTemplate renders a conversation with a template, without a model. Its errors are
// *Error.
func RenderTemplate(ctx context.Context, c *Conversation, t Template) (string, error) {
	if list := c.media(); len(list) > 0 {
		return "", list[0].refused()
	}
	s := &Service{}
	for _, token := range []*int{&s.cfg.Special.BOS.ID, &s.cfg.Special.EOS.ID, &s.cfg.Special.PAD.ID, &s.cfg.Special.UNK.ID} {
		*token = -1
	}
	text, err := s.renderNow(ctx, c, &Settings{Template: t})
	if err != nil {
		return "", AsError(err)
	}
	return text, nil
}
