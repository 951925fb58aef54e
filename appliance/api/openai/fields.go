package openai

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"strconv"

	"vapp.dev/appliance/api/rawjson"
	"vapp.dev/appliance/chat"
)

// fields reads a JSON object field by field. err keeps the first error; later reads
// return the zero value. Names are case-sensitive, a null counts as absent, and for a
// duplicate name the last value counts.
type fields struct {
	at   string // path prefix of the fields, such as "stream_options."
	raw  map[string]json.RawMessage
	seen map[string]bool
	err  *chat.Error
}

// body returns a reader of a request's body, which must be one JSON object. The values
// are slices of b; decoded requests must hold copies only.
func body(b []byte) (*fields, *chat.Error) {
	if err := rawjson.Check(b); err != nil {
		return nil, malformed("", "JSON decode error: %v.", err)
	}
	if rawjson.Kind(b) != '{' {
		return nil, malformed("", "The body must be a JSON object.")
	}
	raw, ok := object(b)
	if !ok {
		return nil, malformed("", "The body must be an object of at most %d names.", maxItems)
	}
	return newFields("", raw), nil
}

func newFields(at string, raw map[string]json.RawMessage) *fields {
	return &fields{at: at, raw: raw, seen: map[string]bool{}}
}

func malformed(param, format string, args ...any) *chat.Error {
	return chat.Errorf(chat.Malformed, param, format, args...)
}

// maxItems is the maximum number of elements of an array, except arrays of token ids,
// and of members of an object.
const maxItems = 1 << 17

// object returns the members of an object. It returns false for null.
func object(v json.RawMessage) (map[string]json.RawMessage, bool) {
	return rawjson.Object(v, maxItems)
}

// checkSize returns an error for too deep nesting or too many values. It runs before
// recursive code reads the text.
func checkSize(b []byte) *chat.Error {
	if err := rawjson.CheckSize(b); err != nil {
		return malformed("", "JSON decode error: %v.", err)
	}
	return nil
}

// get returns a field's value, and false if it is absent or null.
func (f *fields) get(name string) (json.RawMessage, bool) {
	f.seen[name] = true
	v, ok := f.raw[name]
	if !ok || f.err != nil || string(v) == "null" {
		return nil, false
	}
	return v, true
}

// has reports whether a field is present and not null.
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

// unsupportedFields lists fields that are refused, with a remedy.
var unsupportedFields = []struct{ name, why string }{
	{"prompt_embeds", "this server takes prompts as text or token ids, not as embeddings: send `prompt`."},
	{"logits_processors", "this server runs no code of its clients: use logit_bias, bad_words or allowed_token_ids."},
	{"audio", "the model speaks text alone: leave the field out."},
}

// ignoredObjects lists fields for parts of vLLM that this server does not have and that
// do not change the tokens of a reply. They must be objects; they are logged like
// unknown fields.
var ignoredObjects = []string{"kv_transfer_params", "vllm_xargs", "mm_processor_kwargs", "media_io_kwargs"}

// checkUnsupported refuses unsupportedFields, and checks the type of ignoredObjects.
func (f *fields) checkUnsupported() {
	for _, r := range unsupportedFields {
		if f.has(r.name) {
			f.fail(chat.Errorf(chat.Invalid, r.name, "`%s` is not supported: %s", r.name, r.why))
		}
	}
	for _, name := range ignoredObjects {
		f.object(name)
		delete(f.seen, name)
	}
}

// wrong fails since a field does not have the type that want describes.
func (f *fields) wrong(name, want string) {
	f.fail(malformed(f.at+name, "`%s%s` must be %s.", f.at, name, want))
}

func (f *fields) str(name string) string {
	v, ok := f.get(name)
	if !ok {
		return ""
	}
	s, ok := rawjson.String(v)
	if !ok {
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

// number reads a number. It fails for one outside the range of float64.
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

// integer reads an integer, also in a form such as 3.0.
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

// intOpt reads a 32-bit integer.
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

// list reads an array of any values.
func (f *fields) list(name string) []json.RawMessage {
	v, ok := f.get(name)
	if !ok {
		return nil
	}
	out, ok := rawjson.Array(v, maxItems)
	if !ok {
		f.wrong(name, fmt.Sprintf("an array of at most %d elements", maxItems))
		return nil
	}
	return out
}

// cloneValues copies values, so that they do not keep the whole body in memory.
func cloneValues(list []json.RawMessage) []json.RawMessage {
	if list == nil {
		return nil
	}
	out := make([]json.RawMessage, len(list))
	for i, v := range list {
		out[i] = bytes.Clone(v)
	}
	return out
}

// cloneMembers copies the members of an object, as cloneValues does.
func cloneMembers(raw map[string]json.RawMessage) map[string]json.RawMessage {
	if raw == nil {
		return nil
	}
	out := make(map[string]json.RawMessage, len(raw))
	for name, v := range raw {
		out[name] = bytes.Clone(v)
	}
	return out
}

// ints reads an array of 32-bit integers; nil when absent.
func (f *fields) ints(name string) []int32 {
	v, ok := f.get(name)
	if !ok {
		return nil
	}
	list, ok := rawjson.Ints(v)
	if !ok {
		f.wrong(name, "an array of integers of 32 bits")
		return nil
	}
	return list
}

// strings reads a string or an array of strings.
func (f *fields) strings(name string) []string {
	v, ok := f.get(name)
	if !ok {
		return nil
	}
	if v[0] == '"' {
		return []string{f.str(name)}
	}
	parts, ok := rawjson.Array(v, maxItems)
	list := make([]string, len(parts))
	for i := 0; i < len(parts) && ok; i++ {
		list[i], ok = rawjson.String(parts[i])
	}
	if !ok {
		f.wrong(name, "a string or an array of strings")
		return nil
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

// unknown returns the names of the fields that were not read.
func (f *fields) unknown() []string {
	var out []string
	for name := range f.raw {
		if !f.seen[name] {
			out = append(out, name)
		}
	}
	return out
}
