package anthropic

import (
	"encoding/json"
	"fmt"

	"vapp.dev/appliance/api/rawjson"
	"vapp.dev/appliance/chat"
)

// maxItems is the maximum number of elements of an array and of members of an object.
const maxItems = 1 << 15

// object reads a JSON object field by field. err keeps the first error; later reads
// return the zero value. A null counts as absent.
type object struct {
	at   string // path prefix of the fields, such as "messages.0."
	raw  map[string]json.RawMessage
	seen map[string]bool
	err  *chat.Error
}

func malformed(param, format string, args ...any) *chat.Error {
	return chat.Errorf(chat.Malformed, param, format, args...)
}

// newObject returns a reader of the object v.
func newObject(at string, v json.RawMessage) *object {
	o := &object{at: at, seen: map[string]bool{}}
	ok := false
	switch o.raw, ok = rawjson.Object(v, maxItems); {
	case ok:
	case rawjson.Kind(v) != '{':
		o.fail(malformed(o.path(), "`%s` must be an object.", o.path()))
	default:
		o.fail(malformed(o.path(), "`%s` must be an object of at most %d names.", o.path(), maxItems))
	}
	return o
}

// path returns the path of the object itself.
func (o *object) path() string {
	if o.at == "" {
		return "body"
	}
	return o.at[:len(o.at)-1]
}

// fail keeps the first error.
func (o *object) fail(e *chat.Error) {
	if o.err == nil {
		o.err = e
	}
}

// wrong fails with the expected value of a field.
func (o *object) wrong(name, want string) {
	o.fail(malformed(o.at+name, "`%s%s` must be %s.", o.at, name, want))
}

// missing fails since a field is required.
func (o *object) missing(name string) {
	o.fail(malformed(o.at+name, "Field required: `%s%s`.", o.at, name))
}

// get returns a field's value; nil if it is absent or null.
func (o *object) get(name string) json.RawMessage {
	o.seen[name] = true
	v := o.raw[name]
	if o.err != nil || string(v) == "null" {
		return nil
	}
	return v
}

// read decodes a field into a T; want describes T in the error.
func read[T any](o *object, name, want string) T {
	var out, none T
	v := o.get(name)
	if v == nil {
		return none
	}
	if json.Unmarshal(v, &out) != nil {
		o.wrong(name, want)
		return none
	}
	return out
}

func (o *object) flag(name string) bool    { return read[bool](o, name, "true or false") }
func (o *object) count(name string) *int32 { return read[*int32](o, name, "an integer of 32 bits") }
func (o *object) num(name string) *float64 { return read[*float64](o, name, "a number") }
func (o *object) sub(name string) *object  { return newObject(o.at+name+".", o.get(name)) }

// str reads a string; "" when absent.
func (o *object) str(name string) string {
	v := o.get(name)
	if v == nil {
		return ""
	}
	s, ok := rawjson.String(v)
	if !ok {
		o.wrong(name, "a string")
	}
	return s
}

// list reads an array; nil when absent.
func (o *object) list(name string) []json.RawMessage {
	v := o.get(name)
	if v == nil {
		return nil
	}
	out, ok := rawjson.Array(v, maxItems)
	switch {
	case ok:
		return out
	case rawjson.Kind(v) != '[':
		o.wrong(name, "an array")
	default:
		o.wrong(name, fmt.Sprintf("an array of at most %d elements", maxItems))
	}
	return nil
}

// unknown returns the names of the fields that were not read.
func (o *object) unknown() []string {
	var out []string
	for name := range o.raw {
		if !o.seen[name] {
			out = append(out, name)
		}
	}
	return out
}
