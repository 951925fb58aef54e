package tokenizer

import (
	"fmt"
	"strings"
)

// LoadOptions bounds what a tokenizer may be. The zero value is the usual.
type LoadOptions struct {
	// MaxJSON bounds tokenizer.json, in bytes; 0 is 96 MiB.
	MaxJSON int
}

const defaultMaxJSON = 96 << 20

// Tokenizer is a tokenizer.json at work. It is safe for use by many goroutines.
type Tokenizer struct {
	obj   *lease
	table table
}

// Load reads the bytes of a tokenizer.json. Truncation and padding that the file
// asks for are switched off, as transformers does for a plain call. The error is
// an *Error.
func Load(json []byte, o LoadOptions) (*Tokenizer, error) {
	most := o.MaxJSON
	if most == 0 {
		most = defaultMaxJSON
	}
	if len(json) > most {
		return nil, failure(KindTokenizer, 0, "tokenizer.json is over the limit of its size")
	}
	p, err := tokenizerNew(json)
	if err != nil {
		return nil, err
	}
	table, err := tokenizerTable(p)
	if err != nil {
		tokenizerFree(p)
		return nil, err
	}
	return &Tokenizer{newLease(p, "the tokenizer", tokenizerFree), table}, nil
}

// Close frees the native tokenizer once no call is using it. Streams, grammar
// environments and matchers that came from it go on working, except streams of a
// tokenizer whose decoder needs whole sequences.
func (t *Tokenizer) Close() { t.obj.close() }

// EncodeOptions says what becomes of special tokens.
type EncodeOptions struct {
	// AddSpecial adds what the post-processor adds, such as BOS.
	AddSpecial bool
	// PlainSpecial reads the text of a special token inside the text as plain
	// text; otherwise it becomes that token.
	PlainSpecial bool
}

// Encode returns the ids of a text, as transformers does: the text of a special
// token becomes that token.
func (t *Tokenizer) Encode(text string, addSpecial bool) ([]int32, error) {
	return t.EncodeWith(text, EncodeOptions{AddSpecial: addSpecial})
}

// EncodeWith returns the ids of a text. The text must be UTF-8.
func (t *Tokenizer) EncodeWith(text string, o EncodeOptions) ([]int32, error) {
	e := t.NewEncoding(text, o)
	ids := []int32{}
	for !e.Done() {
		var err error
		if ids, err = e.Next(ids); err != nil {
			return nil, err
		}
	}
	return ids, nil
}

// Decode returns the text of ids; bytes that are not UTF-8 become U+FFFD, ids
// that have no token become nothing.
func (t *Tokenizer) Decode(ids []int32, skipSpecial bool) (string, error) {
	for _, id := range ids {
		if id < 0 {
			return "", failure(KindArgument, 0, "a token id is below zero")
		}
	}
	if len(ids) > longDecode {
		return t.decodeLong(ids, skipSpecial)
	}
	p, err := t.obj.hold()
	if err != nil {
		return "", err
	}
	defer t.obj.release()
	return decode(p, ids, skipSpecial)
}

// longDecode is how many ids are decoded at once: each takes some 100 bytes until all
// are.
const longDecode = 8 << 10

// decodeLong decodes one id after the other, which takes the memory of the text alone.
func (t *Tokenizer) decodeLong(ids []int32, skipSpecial bool) (string, error) {
	if t.table.join == joinWhole {
		return "", failure(KindLength, 0, fmt.Sprintf("%d tokens are more than the %d that this tokenizer's decoder can take", len(ids), longDecode))
	}
	n := 0
	for _, id := range ids {
		n += len(t.table.token(id))
	}
	var b strings.Builder
	b.Grow(n)
	s := t.NewStream(skipSpecial)
	for _, id := range ids {
		b.WriteString(s.Push(id))
	}
	b.WriteString(s.Flush())
	return b.String(), nil
}

// VocabSize is one more than the highest id that has a token.
func (t *Tokenizer) VocabSize() int { return len(t.table.flags) }

// ID returns the id of a token in the vocabulary's own spelling.
func (t *Tokenizer) ID(token string) (int32, bool) {
	p, err := t.obj.hold()
	if err != nil {
		return 0, false
	}
	defer t.obj.release()
	return tokenID(p, token)
}

// Token returns the vocabulary's own spelling of an id, such as "Ġthe" (what
// transformers calls convert_ids_to_tokens), "" where the id has no token.
func (t *Tokenizer) Token(id int32) string {
	p, err := t.obj.hold()
	if err != nil {
		return ""
	}
	defer t.obj.release()
	return tokenSpelling(p, id)
}

// TokenText returns what the id decodes to on its own, as vLLM writes a token in
// logprobs: bytes that are not UTF-8 become U+FFFD, special tokens their text.
func (t *Tokenizer) TokenText(id int32) string {
	s, err := t.Decode([]int32{id}, false)
	if err != nil {
		return ""
	}
	return s
}

// TokenBytes returns the raw bytes of an id, a special token's being its text;
// nil where the id has no token. The caller must not write to them.
func (t *Tokenizer) TokenBytes(id int32) []byte { return t.table.token(id) }

// IsSpecial reports whether an id is a special token.
func (t *Tokenizer) IsSpecial(id int32) bool { return t.table.is(id, flagSpecial) }

// table is what is known of every id, 0 to the highest; it never changes.
type table struct {
	join  uint32
	strip int     // spaces that the decoder takes from the start of a text
	flags []uint8 // per id
	ends  []uint32
	bytes []byte // of token i: [ends[i-1], ends[i])
}

const (
	joinBytes    = 1 // bytes are joined, then read as UTF-8
	joinFallback = 2 // text is joined; a run of byte tokens is UTF-8 or one U+FFFD a byte
	joinWhole    = 3 // only whole sequences can be decoded

	flagKnown   = 1
	flagSpecial = 2
	flagByte    = 4 // a byte token of the fallback kind
)

func (t *table) is(id int32, flag uint8) bool {
	return id >= 0 && int(id) < len(t.flags) && t.flags[id]&flag != 0
}

func (t *table) token(id int32) []byte {
	if !t.is(id, flagKnown) {
		return nil
	}
	var start uint32
	if id > 0 {
		start = t.ends[id-1]
	}
	return t.bytes[start:t.ends[id]:t.ends[id]]
}

// Specials are the special tokens, in the order of their ids.
func (t *Tokenizer) Specials() []string {
	var out []string
	for id := range int32(t.VocabSize()) {
		if t.IsSpecial(id) {
			out = append(out, t.Token(id))
		}
	}
	return out
}
