package openai

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"strconv"

	"vapp.dev/appliance/chat"
)

// maxDepth bounds how deep a body may nest; template engines count levels too.
const maxDepth = 100

// fields reads a JSON object by name. The first thing that is wrong stays in
// err; every later reading gives the zero value. Names are exact, a null is as
// if absent, of a name given twice the last value counts.
type fields struct {
	at   string // path in front of a name, such as "stream_options."
	raw  map[string]json.RawMessage
	seen map[string]bool
	err  *chat.Error
}

// body reads a request's body: one JSON object and nothing after it.
func body(b []byte) (*fields, *chat.Error) {
	if err := CheckDepth(b); err != nil {
		return nil, err
	}
	var whole json.RawMessage
	if err := json.Unmarshal(b, &whole); err != nil {
		return nil, malformed("", "JSON decode error: %s.", jsonReason(err))
	}
	raw, ok := object(whole)
	if !ok {
		return nil, malformed("", "The body must be a JSON object.")
	}
	return newFields("", raw), nil
}

func newFields(at string, raw map[string]json.RawMessage) *fields {
	return &fields{at: at, raw: raw, seen: map[string]bool{}}
}

func malformed(param, format string, args ...any) *chat.Error {
	return chat.Errorf(chat.Malformed, param, format, args...)
}

// jsonReason is what is wrong with the text, without a Go type's name.
func jsonReason(err error) string {
	if s, ok := err.(*json.SyntaxError); ok {
		return fmt.Sprintf("%s at byte %d", s.Error(), s.Offset)
	}
	return err.Error()
}

// maxItems bounds what an array or object may hold before it is taken apart,
// arrays of token ids excepted.
const maxItems = 1 << 17

// items is at least the number of elements of an array or object.
func items(v json.RawMessage) int {
	n, depth, quoted := 1, 0, false
	for i := 0; i < len(v); i++ {
		switch c := v[i]; {
		case quoted && c == '\\':
			i++
		case c == '"':
			quoted = !quoted
		case quoted:
		case c == '{' || c == '[':
			depth++
		case c == '}' || c == ']':
			depth--
		case c == ',' && depth == 1:
			n++
		}
	}
	return n
}

// object takes an object apart; a null is none.
func object(v json.RawMessage) (map[string]json.RawMessage, bool) {
	v = bytes.TrimSpace(v)
	if len(v) == 0 || v[0] != '{' || items(v) > maxItems {
		return nil, false
	}
	var out map[string]json.RawMessage
	return out, json.Unmarshal(v, &out) == nil
}

// CheckDepth refuses deep nesting before anything recursive sees it.
func CheckDepth(b []byte) *chat.Error {
	depth, quoted := 0, false
	for i := 0; i < len(b); i++ {
		switch c := b[i]; {
		case quoted && c == '\\':
			i++
		case c == '"':
			quoted = !quoted
		case quoted:
		case c == '{' || c == '[':
			if depth++; depth > maxDepth {
				return malformed("", "JSON decode error: the body nests deeper than %d levels.", maxDepth)
			}
		case c == '}' || c == ']':
			depth--
		}
	}
	return nil
}

// get returns a value that is there and not null.
func (f *fields) get(name string) (json.RawMessage, bool) {
	f.seen[name] = true
	v, ok := f.raw[name]
	if !ok || f.err != nil || string(v) == "null" {
		return nil, false
	}
	return v, true
}

// has reports that a value is there and not null.
func (f *fields) has(name string) bool {
	_, ok := f.get(name)
	return ok
}

// fail keeps the first error.
func (f *fields) fail(e *chat.Error) {
	if f.err == nil {
		f.err = e
	}
}

// failIf is fail for an error that may be nil.
func (f *fields) failIf(e *chat.Error) {
	if e != nil {
		f.fail(e)
	}
}

// refusals are fields that mean something this server does not do, with what to do
// about it.
var refusals = []struct{ name, why string }{
	{"prompt_embeds", "this server takes prompts as text or token ids, not as embeddings: send `prompt`."},
	{"logits_processors", "this server runs no code of its clients: use logit_bias, bad_words or allowed_token_ids."},
	{"audio", "the model speaks text alone: leave the field out."},
}

// hints are objects for parts of vLLM that this server does not have, and whose absence
// changes no token of a reply: they are checked, ignored and logged like unknown fields.
var hints = []string{"kv_transfer_params", "vllm_xargs", "mm_processor_kwargs", "media_io_kwargs"}

// judge refuses refusals, and checks hints.
func (f *fields) judge() {
	for _, r := range refusals {
		if f.has(r.name) {
			f.fail(chat.Errorf(chat.Invalid, r.name, "`%s` is not supported: %s", r.name, r.why))
		}
	}
	for _, name := range hints {
		f.object(name)
		delete(f.seen, name)
	}
}

// wrong says that a field has another type than want.
func (f *fields) wrong(name, want string) {
	f.fail(malformed(f.at+name, "`%s%s` must be %s.", f.at, name, want))
}

func (f *fields) str(name string) string {
	var s string
	if v, ok := f.get(name); ok && json.Unmarshal(v, &s) != nil {
		f.wrong(name, "a string")
	}
	return s
}

func (f *fields) strOpt(name string) *string {
	if !f.has(name) {
		return nil
	}
	s := f.str(name)
	return &s
}

func (f *fields) flag(name string, absent bool) bool {
	v, ok := f.get(name)
	if !ok {
		return absent
	}
	switch string(v) {
	case "true":
		return true
	case "false":
		return false
	}
	f.wrong(name, "true or false")
	return absent
}

// number reads a number; JSON has no infinities, and one out of a double's range
// is refused.
func (f *fields) number(name string) *float64 {
	v, ok := f.get(name)
	if !ok {
		return nil
	}
	var x float64
	if json.Unmarshal(v, &x) != nil {
		f.wrong(name, "a number")
		return nil
	}
	return &x
}

func (f *fields) numberOr(name string, absent float64) float64 {
	if x := f.number(name); x != nil {
		return *x
	}
	return absent
}

// integer reads a whole number, also one written as 3.0.
func (f *fields) integer(name string) *int64 {
	v, ok := f.get(name)
	if !ok {
		return nil
	}
	x, ok := wholeNumber(v)
	if !ok {
		f.wrong(name, "an integer")
		return nil
	}
	return &x
}

func wholeNumber(v json.RawMessage) (int64, bool) {
	if v[0] != '-' && (v[0] < '0' || v[0] > '9') {
		return 0, false
	}
	if x, err := strconv.ParseInt(string(v), 10, 64); err == nil {
		return x, true
	}
	var d float64
	if json.Unmarshal(v, &d) != nil || d != math.Trunc(d) || math.Abs(d) > 1<<53 {
		return 0, false
	}
	return int64(d), true
}

// intOpt reads an integer that fits 32 bits, as all counts do.
func (f *fields) intOpt(name string) *int {
	x := f.integer(name)
	if x == nil {
		return nil
	}
	if *x != int64(int32(*x)) {
		f.wrong(name, "an integer of 32 bits")
		return nil
	}
	n := int(*x)
	return &n
}

func (f *fields) intOr(name string, absent int) int {
	if n := f.intOpt(name); n != nil {
		return *n
	}
	return absent
}

// list reads an array of anything.
func (f *fields) list(name string) []json.RawMessage {
	v, ok := f.get(name)
	if !ok {
		return nil
	}
	out := []json.RawMessage{}
	if v[0] != '[' || items(v) > maxItems || json.Unmarshal(v, &out) != nil {
		f.wrong(name, fmt.Sprintf("an array of at most %d elements", maxItems))
		return nil
	}
	return out
}

// ints reads an array of integers of 32 bits; nil when absent.
func (f *fields) ints(name string) []int32 {
	v, ok := f.get(name)
	if !ok {
		return nil
	}
	list, ok := tokens(v)
	if !ok {
		f.wrong(name, "an array of integers of 32 bits")
		return nil
	}
	return list
}

// strings reads an array of strings, or one string when alone.
func (f *fields) strings(name string) []string {
	v, ok := f.get(name)
	if !ok {
		return nil
	}
	if v[0] == '"' {
		return []string{f.str(name)}
	}
	var out []*string
	if v[0] != '[' || items(v) > maxItems || json.Unmarshal(v, &out) != nil {
		f.wrong(name, "a string or an array of strings")
		return nil
	}
	list := make([]string, len(out))
	for i, s := range out {
		if s == nil {
			f.wrong(name, "a string or an array of strings")
			return nil
		}
		list[i] = *s
	}
	return list
}

// object reads an object; nil when absent.
func (f *fields) object(name string) map[string]json.RawMessage {
	v, ok := f.get(name)
	if !ok {
		return nil
	}
	out, ok := object(v)
	if !ok {
		f.wrong(name, fmt.Sprintf("an object of at most %d names", maxItems))
		return nil
	}
	return out
}

// tokens reads an array of integers of 32 bits.
func tokens(v json.RawMessage) ([]int32, bool) {
	ids := []int32{}
	// a null would be read as 0
	ok := v[0] == '[' && bytes.IndexByte(v, 'n') < 0 && json.Unmarshal(v, &ids) == nil
	return ids, ok
}

// unknown lists the fields that nobody has asked for.
func (f *fields) unknown() []string {
	var out []string
	for name := range f.raw {
		if !f.seen[name] {
			out = append(out, name)
		}
	}
	return out
}
