package openai

import "vapp.dev/appliance/chat"

// DecodeTokenize reads the body of POST /tokenize, with a prompt or with
// messages. Its errors are *chat.Error.
func DecodeTokenize(b []byte) (chat.TokenizeParams, error) {
	f, bad := body(b)
	if bad != nil {
		return chat.TokenizeParams{}, bad
	}
	return readTokenize(f)
}

func readTokenize(f *fields) (chat.TokenizeParams, error) {
	a := chat.TokenizeParams{Model: f.str("model"), Strings: f.flag("return_token_strs", false)}
	switch {
	case f.has("messages"):
		a.AddSpecialTokens = f.flag("add_special_tokens", false)
		a.Chat = conversation(f)
		a.Chat.Tools = cloneValues(f.list("tools"))
		if _, bad := toolNames("tools", a.Chat.Tools); bad != nil {
			f.fail(bad)
		}
	case f.has("prompt"):
		a.AddSpecialTokens = f.flag("add_special_tokens", true)
		a.Text = f.str("prompt")
	default:
		f.fail(malformed("prompt", "Field required: `prompt` or `messages`."))
	}
	if f.err != nil {
		return a, f.err
	}
	return a, nil
}

type tokenizeReply struct {
	Count       int      `json:"count"`
	MaxModelLen int      `json:"max_model_len"`
	Tokens      []int32  `json:"tokens"`
	TokenStrs   []string `json:"token_strs"`
}

// TokenizeReply returns the body of a reply of POST /tokenize.
func TokenizeReply(t chat.Tokenized, modelLen int) []byte {
	return encode(tokenizeReply{len(t.Tokens), modelLen, t.Tokens, t.Strings})
}

// Detokenize is a decoded body of POST /detokenize.
type Detokenize struct {
	Model  string
	Tokens []int32
}

// DecodeDetokenize reads the body of POST /detokenize. Its errors are
// *chat.Error.
func DecodeDetokenize(b []byte) (Detokenize, error) {
	f, bad := body(b)
	if bad != nil {
		return Detokenize{}, bad
	}
	return readDetokenize(f)
}

func readDetokenize(f *fields) (Detokenize, error) {
	d := Detokenize{Model: f.str("model"), Tokens: f.ints("tokens")}
	if !f.has("tokens") {
		f.fail(malformed("tokens", "Field required: `tokens`."))
	}
	if f.err != nil {
		return d, f.err
	}
	return d, nil
}

type detokenizeReply struct {
	Prompt string `json:"prompt"`
}

// DetokenizeReply returns the body of a reply of POST /detokenize.
func DetokenizeReply(text string) []byte {
	return encode(detokenizeReply{text})
}
