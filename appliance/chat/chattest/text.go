package chattest

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"unicode/utf8"

	"vapp.dev/appliance/chat"
	"vapp.dev/engine/tokenizer"
)

// The special tokens; lower ids are bytes.
const (
	EOS   = 256
	BOS   = 257
	Turn  = 258 // ends a turn: an additional EOS
	Calls = 259 // a dialect's marker
	Vocab = 260
)

// specials holds the texts of special tokens.
var specials = map[int32]string{EOS: "<eos>", BOS: "<bos>", Turn: "<turn>", Calls: "[TOOL_CALLS]"}

// Encode returns the bytes of a text, and special tokens for their texts.
func (m *Model) Encode(text string, addSpecial bool) ([]int32, error) {
	if !utf8.ValidString(text) {
		return nil, fmt.Errorf("text is not UTF-8")
	}
	var ids []int32
	if addSpecial {
		ids = append(ids, BOS)
	}
next:
	for text != "" {
		for id, s := range specials {
			if strings.HasPrefix(text, s) {
				ids, text = append(ids, id), text[len(s):]
				continue next
			}
		}
		ids, text = append(ids, int32(text[0])), text[1:]
	}
	return ids, nil
}

// Encoding returns the result of Encode as an Encoding.
func (m *Model) Encoding(text string, addSpecial bool) chat.Encoding {
	return Whole(m.Encode, text, addSpecial)
}

// Whole returns an Encoding of one window.
func Whole(encode func(string, bool) ([]int32, error), text string, addSpecial bool) chat.Encoding {
	return &whole{encode: func() ([]int32, error) { return encode(text, addSpecial) }}
}

type whole struct {
	encode func() ([]int32, error)
	done   bool
}

func (w *whole) Done() bool { return w.done }

func (w *whole) Next(ids []int32) ([]int32, error) {
	w.done = true
	more, err := w.encode()
	return append(ids, more...), err
}

// Decode returns the text of tokens.
func (m *Model) Decode(ids []int32, skipSpecial bool) (string, error) {
	var b []byte
	for _, id := range ids {
		if !skipSpecial || id < 256 {
			b = append(b, m.TokenBytes(id)...)
		}
	}
	return strings.ToValidUTF8(string(b), "\ufffd"), nil
}

// TokenText returns the text of a single token.
func (m *Model) TokenText(id int32) string {
	return strings.ToValidUTF8(string(m.TokenBytes(id)), "\ufffd")
}

// VocabSize returns the number of bytes and special tokens.
func (m *Model) VocabSize() int { return Vocab }

// Token returns a spelling that differs from the text.
func (m *Model) Token(id int32) string { return fmt.Sprintf("t%d", id) }

// TokenBytes returns a byte, or the text of a special token.
func (m *Model) TokenBytes(id int32) []byte {
	if id < 256 {
		return []byte{byte(id)}
	}
	return []byte(specials[id])
}

// NewDecoder returns the decoder of the oldest choice without one.
func (m *Model) NewDecoder(skipSpecial bool) chat.Decoder {
	m.mu.Lock()
	defer m.mu.Unlock()
	d := &decoder{m: m, skip: skipSpecial}
	if len(m.waiting) > 0 {
		d.from, m.waiting = m.waiting[0], m.waiting[1:]
		m.bound.Broadcast()
	}
	return d
}

type decoder struct {
	m    *Model
	from *speaker
	skip bool
	held []byte
}

func (d *decoder) Push(id int32) string {
	if d.from != nil {
		defer d.from.next()
	}
	if d.skip && id >= 256 {
		return ""
	}
	d.held = append(d.held, d.m.TokenBytes(id)...)
	n := 0
	for n < len(d.held) && utf8.FullRune(d.held[n:]) {
		_, size := utf8.DecodeRune(d.held[n:])
		n += size
	}
	out := string(d.held[:n])
	d.held = d.held[n:]
	return strings.ToValidUTF8(out, "\ufffd")
}

func (d *decoder) Flush() string {
	if len(d.held) == 0 {
		return ""
	}
	d.held = nil
	return "\ufffd"
}

// Template renders [role]content for each message, and [assistant] as the generation prompt.
// A system message "raise X" raises X; parts are joined by "+".
type Template struct {
	Format string // "": tokenizer.ContentString
	Prefix string
}

// ContentFormat returns Format.
func (t Template) ContentFormat() string {
	if t.Format == "" {
		return tokenizer.ContentString
	}
	return t.Format
}

// Render renders the messages, and the variables "mark" and "tools" if present.
func (t Template) Render(_ context.Context, vars []byte) (string, error) {
	var v struct {
		Messages []struct {
			Role    string
			Content any
		}
		Add   bool `json:"add_generation_prompt"`
		Tools []any
		Mark  string
	}
	if err := json.Unmarshal(vars, &v); err != nil {
		return "", err
	}
	out := t.Prefix + v.Mark
	if len(v.Tools) > 0 {
		out += fmt.Sprintf("{%d tools}", len(v.Tools))
	}
	for _, m := range v.Messages {
		text, ok := m.Content.(string)
		if !ok {
			text = parts(m.Content)
		}
		if why, raises := strings.CutPrefix(text, "raise "); raises && m.Role == "system" {
			return "", &tokenizer.TemplateError{Kind: tokenizer.KindRaised, Line: 3, Msg: why}
		}
		out += "[" + m.Role + "]" + text
	}
	if v.Add {
		out += "[assistant]"
	}
	return out, nil
}

func parts(content any) string {
	var list []string
	for _, p := range content.([]any) {
		part := p.(map[string]any)
		text, is := part["text"].(string)
		if !is { // {"type": "image"}
			text = Mark
		}
		list = append(list, text)
	}
	return strings.Join(list, "+")
}
