package openai

import (
	"bytes"

	"vapp.dev/appliance/api/rawjson"
	"vapp.dev/appliance/chat"
)

// CompletionRequest is a decoded body of POST /v1/completions.
type CompletionRequest struct {
	Ask  chat.RequestParams
	Wire Wire
}

// defaultMaxTokens is the default of max_tokens in a completion.
const defaultMaxTokens = 16

// DecodeCompletion reads the body of POST /v1/completions. Its errors are
// *chat.Error.
func DecodeCompletion(b []byte) (*CompletionRequest, error) {
	f, bad := body(b)
	if bad != nil {
		return nil, bad
	}
	return readCompletion(f)
}

func readCompletion(f *fields) (*CompletionRequest, error) {
	r := &CompletionRequest{}
	common(f, &r.Ask, &r.Wire)
	most := f.intOr("max_tokens", defaultMaxTokens)
	r.Ask.MaxTokens = &most
	r.Ask.AddSpecialTokens = f.flag("add_special_tokens", true)
	if n := f.intOpt("logprobs"); n != nil {
		if *n < 0 {
			f.fail(malformed("logprobs", "`logprobs` must be a positive value."))
		}
		r.Ask.Logprobs, r.Wire.TopLogprobs = n, *n
	}
	if n, p := r.Ask.Logprobs, r.Ask.PromptLogprobs; r.Ask.Echo && n != nil && (p == nil || *p >= 0 && *p < *n) {
		r.Ask.PromptLogprobs = n // the reply's logprobs then include those of the prompt
	}
	if f.has("suffix") {
		f.fail(chat.Errorf(chat.Invalid, "suffix", "suffix is not currently supported"))
	}
	r.Ask.Prompts = prompts(f)
	if f.err != nil {
		return nil, f.err
	}
	r.Wire.Unknown = f.unknown()
	return r, nil
}

func prompts(f *fields) []chat.Prompt {
	if !f.has("prompt") {
		f.fail(malformed("prompt", "Either prompt or prompt_embeds must be provided and non-empty."))
		return nil
	}
	return promptsOf(f, "prompt")
}

// promptsOf reads a string, an array of strings, an array of token ids, or an array of
// arrays of token ids.
func promptsOf(f *fields, name string) []chat.Prompt {
	v, ok := f.get(name)
	if !ok {
		return nil
	}
	if v[0] == '"' {
		return []chat.Prompt{{Text: f.str(name)}}
	}
	const want = "a string, an array of strings, an array of token ids or an array of arrays of token ids"
	if v[0] != '[' {
		f.wrong(name, want)
		return nil
	}
	if first := bytes.TrimLeft(v[1:], " \t\r\n"); first[0] != '"' && first[0] != '[' && first[0] != ']' {
		ids, ok := rawjson.Ints(v)
		if !ok {
			f.wrong(name, want)
			return nil
		}
		return []chat.Prompt{{Tokens: ids}}
	}
	list := f.list(name)
	out := make([]chat.Prompt, 0, len(list))
	for _, item := range list {
		p := chat.Prompt{}
		ok := false
		switch item[0] {
		case '"':
			p.Text, ok = rawjson.String(item)
		case '[':
			p.Tokens, ok = rawjson.Ints(item)
		}
		if !ok {
			f.wrong(name, want)
			return nil
		}
		out = append(out, p)
	}
	return out
}
