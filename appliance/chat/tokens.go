package chat

import "context"

// TokenizeAsk asks for the tokens of a text or, when Chat is set, of a rendered
// conversation.
type TokenizeAsk struct {
	Model            string
	Text             string
	Chat             *Conversation
	AddSpecialTokens bool
	Strings          bool // the vocabulary's spelling of each token too
	CountOnly        bool // Tokens and Strings are nil
}

// Tokenized are tokens; Strings is nil unless it was asked for.
type Tokenized struct {
	Count   int
	Tokens  []int32
	Strings []string
}

// maxTokenized is how many times the model's context the tokens of a reply may be.
const maxTokenized = 4

// Tokenize encodes a text as a request would. Its errors are *Error.
func (s *Service) Tokenize(ctx context.Context, a TokenizeAsk, set *Settings) (Tokenized, error) {
	if _, err := set.Name(a.Model); err != nil {
		return Tokenized{}, err
	}
	p := Prompt{Text: a.Text}
	if a.Chat != nil {
		if err := checkConversation(&Ask{Chat: a.Chat}, set); err != nil {
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
		k := kept{most: maxTokenized * s.cfg.ModelLen, only: true}
		if a.CountOnly {
			k = kept{most: s.cfg.ModelLen}
		}
		if out.Tokens, out.Count, err = s.encode(ctx, p, a.AddSpecialTokens, a.Chat != nil, k); err != nil {
			return Tokenized{}, AsError(err)
		}
		if k.only && out.Count > k.most {
			return Tokenized{}, tooMany("The text has", k.most, s.cfg.ModelLen)
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

// Detokenize is the text of tokens, special ones included. Its errors are *Error.
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

func tooMany(what string, most, modelLen int) error {
	return Errorf(TooLong, "input_tokens", "%s more than %d tokens, which is %d times the model's maximum context length of %d tokens. Please send it in parts.",
		what, most, maxTokenized, modelLen)
}

func (s *Service) inVocabulary(param string, ids []int32) error {
	size := s.cfg.Vocabulary.VocabSize()
	for _, id := range ids {
		if id < 0 || int(id) >= size {
			return invalid(param, "Token id %d is out of vocabulary: ids must be in 0..%d.", id, size-1)
		}
	}
	return nil
}

// Rendered is the prompt that a conversation becomes.
type Rendered struct {
	Text   string
	Tokens []int32
}

// Render makes the prompt of a conversation as a request would. Its errors are
// *Error.
func (s *Service) Render(ctx context.Context, c *Conversation, set *Settings) (Rendered, error) {
	if err := checkConversation(&Ask{Chat: c}, set); err != nil {
		return Rendered{}, err
	}
	text, err := s.render(ctx, c, set)
	if err != nil {
		return Rendered{}, AsError(err)
	}
	if err := s.checkLength(text); err != nil {
		return Rendered{}, err
	}
	ids, _, err := s.encode(ctx, Prompt{Text: text}, false, true, kept{most: s.maxText()})
	if err != nil {
		return Rendered{}, AsError(err)
	}
	return Rendered{text, ids}, nil
}

// RenderTemplate is the text that a template alone makes of a conversation,
// without a model. Its errors are *Error.
func RenderTemplate(ctx context.Context, c *Conversation, t Template) (string, error) {
	s := &Service{}
	for _, token := range []*int{&s.cfg.Special.BOS.ID, &s.cfg.Special.EOS.ID, &s.cfg.Special.PAD.ID, &s.cfg.Special.UNK.ID} {
		*token = -1
	}
	text, err := s.rendered(ctx, c, &Settings{Template: t})
	if err != nil {
		return "", AsError(err)
	}
	return text, nil
}
