package tokenizer

import (
	"fmt"
	"strings"
)

// LoadOptions limits the size of a tokenizer. The zero value has the defaults.
type LoadOptions struct {
	// MaxJSON is the maximum size of tokenizer.json in bytes; 0 is 96 MiB.
	MaxJSON int
}

const defaultMaxJSON = 96 << 20

// Tokenizer is a loaded tokenizer.json. It is safe for use by many goroutines.
type Tokenizer struct {
	obj   *lease
	table table
}

// Load parses a tokenizer.json. It disables the file's truncation and padding, as transformers does
// for a plain call. The error is an *Error.
func Load(json []byte, o LoadOptions) (*Tokenizer, error) {
	most := o.MaxJSON
	if most == 0 {
		most = defaultMaxJSON
	}
	if len(json) > most {
		return nil, failure(KindTokenizer, 0, "tokenizer.json exceeds its size limit")
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

// Close frees the native tokenizer when no call uses it. Its streams, grammar environments and
// matchers remain usable, except streams of a tokenizer whose decoder needs whole sequences.
func (t *Tokenizer) Close() { t.obj.close() }

// EncodeOptions configures the handling of special tokens.
type EncodeOptions struct {
	// AddSpecial adds the tokens of the post-processor, such as BOS.
	AddSpecial bool
	// PlainSpecial encodes the text of a special token within the text as plain text; otherwise it
	// becomes that token.
	PlainSpecial bool
}

// Encode returns the ids of a text, as transformers does: the text of a special token becomes that
// token.
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

// Decode returns the text of ids. Bytes that are not UTF-8 become U+FFFD; ids without a token are
// ignored.
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

// longDecode is the maximum number of ids decoded in one call, which needs some 100 bytes per id.
const longDecode = 8 << 10

// decodeLong decodes ids one by one, which needs only the memory of the text.
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

// VocabSize returns the highest id that has a token, plus one.
func (t *Tokenizer) VocabSize() int { return len(t.table.flags) }

// ID returns the id of a token, given in the vocabulary's own spelling.
func (t *Tokenizer) ID(token string) (int32, bool) {
	p, err := t.obj.hold()
	if err != nil {
		return 0, false
	}
	defer t.obj.release()
	return tokenID(p, token)
}

// Token returns the vocabulary's own spelling of an id, such as "Ġthe" (transformers'
// convert_ids_to_tokens); "" if the id has no token.
func (t *Tokenizer) Token(id int32) string {
	p, err := t.obj.hold()
	if err != nil {
		return ""
	}
	defer t.obj.release()
	return tokenSpelling(p, id)
}

// TokenText returns the decoded text of a single id, as vLLM writes a token in logprobs: bytes that
// are not UTF-8 become U+FFFD, special tokens their text.
func (t *Tokenizer) TokenText(id int32) string {
	s, err := t.Decode([]int32{id}, false)
	if err != nil {
		return ""
	}
	return s
}

// TokenBytes returns the raw bytes of an id; for a special token, those of its text; nil if the id
// has no token. The caller must not modify them.
func (t *Tokenizer) TokenBytes(id int32) []byte { return t.table.token(id) }

// IsSpecial reports whether an id is a special token.
func (t *Tokenizer) IsSpecial(id int32) bool { return t.table.is(id, flagSpecial) }

// table holds the properties of every id from 0 to the highest; it is immutable.
type table struct {
	join  uint32
	strip int     // spaces that the decoder strips from the start of a text
	flags []uint8 // per id
	ends  []uint32
	bytes []byte // of token i: [ends[i-1], ends[i])
}

const (
	joinBytes    = 1 // bytes are joined, then read as UTF-8
	joinFallback = 2 // text is joined; a run of byte tokens is UTF-8, or one U+FFFD per byte
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

// Specials returns the special tokens in the order of their ids.
func (t *Tokenizer) Specials() []string {
	var out []string
	for id := range int32(t.VocabSize()) {
		if t.IsSpecial(id) {
			out = append(out, t.Token(id))
		}
	}
	return out
}
