package openai

import (
	"encoding/json"
	"strings"

	"vapp.dev/appliance/api/rawjson"
	"vapp.dev/appliance/chat/pooling"
)

// ScoreRequest is a decoded body of /score or /rerank.
type ScoreRequest struct {
	Ask     pooling.ScoreParams
	TopN    int // of /rerank: the number of best results; 0: all
	Unknown []string
}

// DecodeScore reads the body of POST /score. Its errors are *chat.Error.
func DecodeScore(b []byte) (*ScoreRequest, error) {
	f, bad := body(b)
	if bad != nil {
		return nil, bad
	}
	return readScore(f)
}

func readScore(f *fields) (*ScoreRequest, error) {
	r := &ScoreRequest{}
	names := [][2]string{{"text_1", "text_2"}, {"data_1", "data_2"}, {"queries", "documents"}, {"queries", "items"}}
	found := false
	for _, pair := range names {
		if first, second := f.has(pair[0]), f.has(pair[1]); first && second && !found {
			found = true
			r.Ask.Queries, r.Ask.Documents = texts(f, pair[0], true), texts(f, pair[1], true)
		}
	}
	if !found {
		f.fail(malformed("text_1", "Field required: `text_1` and `text_2`, `data_1` and `data_2`, or `queries` and `documents`."))
	}
	return r.rest(f)
}

// DecodeRerank reads the body of POST /rerank. Its errors are *chat.Error.
func DecodeRerank(b []byte) (*ScoreRequest, error) {
	f, bad := body(b)
	if bad != nil {
		return nil, bad
	}
	return readRerank(f)
}

func readRerank(f *fields) (*ScoreRequest, error) {
	r := &ScoreRequest{TopN: f.intOr("top_n", 0)}
	for _, name := range []string{"query", "documents"} {
		if !f.has(name) {
			f.fail(malformed(name, "Field required: `%s`.", name))
		}
	}
	if r.TopN < 0 {
		f.fail(malformed("top_n", "`top_n` must be at least 0, got %d.", r.TopN))
	}
	if v, ok := f.get("query"); ok {
		text, ok := textOf(v)
		if !ok {
			f.wrong("query", "a string, or an object whose content is text")
		}
		r.Ask.Queries = []string{text}
	}
	r.Ask.Documents = texts(f, "documents", false)
	return r.rest(f)
}

// rest reads the fields that both routes share.
func (r *ScoreRequest) rest(f *fields) (*ScoreRequest, error) {
	poolingFields(f, &r.Ask.Params)
	r.Ask.AddSpecialTokens = f.flag("add_special_tokens", true)
	r.Ask.Template = f.str("chat_template")
	r.Ask.TemplateKwargs = cloneMembers(f.object("chat_template_kwargs"))
	if f.err != nil {
		return nil, f.err
	}
	r.Unknown = f.unknown()
	return r, nil
}

// texts reads an array of texts or, if alone is set, one text.
func texts(f *fields, name string, alone bool) []string {
	v, ok := f.get(name)
	if !ok {
		return nil
	}
	if alone && v[0] != '[' {
		text, ok := textOf(v)
		if !ok {
			f.wrong(name, "a string, an array of strings, or an object whose content is text")
		}
		return []string{text}
	}
	out := []string{}
	for _, item := range f.list(name) {
		text, ok := textOf(item)
		if !ok {
			f.wrong(name, "a string or an array of strings, or of objects whose content is text")
			return nil
		}
		out = append(out, text)
	}
	return out
}

// textOf reads a string, or an object {"content": [{"type": "text", "text": …}]}, whose
// parts it joins by line breaks.
func textOf(v json.RawMessage) (string, bool) {
	if rawjson.Kind(v) == '"' {
		return rawjson.String(v)
	}
	var parts struct {
		Content []struct {
			Type string  `json:"type"`
			Text *string `json:"text"`
		} `json:"content"`
	}
	if json.Unmarshal(v, &parts) != nil || len(parts.Content) == 0 {
		return "", false
	}
	var text strings.Builder
	for i, p := range parts.Content {
		if p.Type != "text" || p.Text == nil {
			return "", false
		}
		if i > 0 {
			text.WriteByte('\n')
		}
		text.WriteString(*p.Text)
	}
	return text.String(), true
}
