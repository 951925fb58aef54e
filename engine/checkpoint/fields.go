package checkpoint

import (
	"bytes"
	"encoding/json"
	"errors"
	"strconv"
	"strings"
)

// fields reads typed values from a JSON object of a file and keeps the first error. null counts as
// absent.
type fields struct {
	file   string
	prefix string
	m      map[string]json.RawMessage
	outer  map[string]json.RawMessage // used for keys that m lacks; may be nil
	absent map[string]json.RawMessage // defaults of keys that both lack; may be nil
	err    error
}

// newFields decodes an object; prefix ("rope_scaling.") precedes its keys in errors.
func newFields(file, prefix string, raw []byte) (*fields, error) {
	f := &fields{file: file, prefix: prefix}
	if err := json.Unmarshal(raw, &f.m); err != nil {
		at := strings.TrimSuffix(prefix, ".")
		var syntax *json.SyntaxError
		if errors.As(err, &syntax) {
			return nil, fault(file, prefix+brokenAt(raw), "is not JSON: %v (byte %d)", err, syntax.Offset)
		}
		return nil, fault(file, at, "is not a JSON object: %s", jsonCause(err))
	}
	if f.m == nil {
		return nil, fault(file, strings.TrimSuffix(prefix, "."), "is null, not a JSON object")
	}
	return f, nil
}

// brokenAt returns the key whose value is invalid JSON, such as Python's NaN.
func brokenAt(raw []byte) string {
	dec := json.NewDecoder(bytes.NewReader(raw))
	key, depth, isKey := "", 0, false
	for {
		t, err := dec.Token()
		if err != nil {
			return key
		}
		switch v := t.(type) {
		case json.Delim:
			if v == '{' || v == '[' {
				depth++
			} else {
				depth--
			}
			isKey = depth == 1
		case string:
			if depth == 1 && isKey {
				key = v
			}
			isKey = depth == 1 && !isKey
		default:
			isKey = depth == 1
		}
	}
}

func (f *fields) fail(key, format string, args ...any) {
	if f.err == nil {
		f.err = fault(f.file, f.prefix+key, format, args...)
	}
}

// raw returns the value of a key; ok is false if it is absent or null. An absent key has its default,
// one that is null has none.
func (f *fields) raw(key string) (json.RawMessage, bool) {
	for _, m := range []map[string]json.RawMessage{f.m, f.outer} {
		if v, ok := m[key]; ok && string(v) != "null" {
			return v, true
		}
	}
	if _, null := f.m[key]; null {
		return nil, false
	}
	v, ok := f.absent[key]
	return v, ok
}

func (f *fields) has(key string) bool {
	_, ok := f.raw(key)
	return ok
}

// text reads a string of at most 4096 bytes.
func (f *fields) text(key, absent string) string {
	v, ok := f.raw(key)
	if !ok {
		return absent
	}
	var s string
	if json.Unmarshal(v, &s) != nil || len(s) > 4096 {
		f.fail(key, "is %s, not a short string", clip(string(v)))
	}
	return s
}

func (f *fields) flag(key string, absent bool) bool {
	v, ok := f.raw(key)
	if !ok {
		return absent
	}
	switch string(v) {
	case "true":
		return true
	case "false":
		return false
	}
	f.fail(key, "is %s, not true or false", clip(string(v)))
	return false
}

// count reads a required whole number in [lo, hi].
func (f *fields) count(key string, lo, hi int64) int {
	if !f.has(key) {
		f.fail(key, "is missing")
		return 0
	}
	return f.countOr(key, lo, hi, 0)
}

// countOr is count with a default for an absent key.
func (f *fields) countOr(key string, lo, hi, absent int64) int {
	v, ok := f.raw(key)
	if !ok {
		return int(absent)
	}
	n, ok := whole(v)
	if !ok {
		f.fail(key, "is %s, not a whole number", clip(string(v)))
		return 0
	}
	if n < lo || n > hi {
		f.fail(key, "is %d, allowed are %d to %d", n, lo, hi)
		return 0
	}
	return int(n)
}

// whole parses a whole number, written as 8192 or 8192.0.
func whole(v json.RawMessage) (int64, bool) {
	if n, err := strconv.ParseInt(string(v), 10, 64); err == nil {
		return n, true
	}
	x, ok := number(v)
	if !ok || x != float64(int64(x)) || x > 1<<53 || x < -1<<53 {
		return 0, false
	}
	return int64(x), true
}

func number(v json.RawMessage) (float64, bool) {
	if len(v) == 0 || v[0] != '-' && (v[0] < '0' || v[0] > '9') {
		return 0, false
	}
	x, err := strconv.ParseFloat(string(v), 64)
	return x, err == nil && finite(x)
}

// real reads a required number in [lo, hi].
func (f *fields) real(key string, lo, hi float64) float64 {
	if !f.has(key) {
		f.fail(key, "is missing")
		return 0
	}
	return f.realOr(key, lo, hi, 0)
}

// realOr is real with a default for an absent key.
func (f *fields) realOr(key string, lo, hi, absent float64) float64 {
	v, ok := f.raw(key)
	if !ok {
		return absent
	}
	x, ok := number(v)
	if !ok {
		f.fail(key, "is %s, not a finite number", clip(string(v)))
		return 0
	}
	if x < lo || x > hi {
		f.fail(key, "is %v, allowed are %v to %v", x, lo, hi)
		return 0
	}
	return x
}

// ids reads a token id or a list of them, each in [0, vocab).
func (f *fields) ids(key string, vocab int) []int {
	v, ok := f.raw(key)
	if !ok {
		return nil
	}
	var list []json.RawMessage
	if v[0] != '[' {
		list = []json.RawMessage{v}
	} else if json.Unmarshal(v, &list) != nil || len(list) > 1024 {
		f.fail(key, "is not a list of at most 1024 token ids")
		return nil
	}
	var out []int
	for _, e := range list {
		n, ok := whole(e)
		if !ok || n < 0 || n >= int64(vocab) {
			f.fail(key, "%s is not a token id below %d", clip(string(e)), vocab)
			return nil
		}
		out = append(out, int(n))
	}
	return out
}

// oneID is ids for a key with a single id; -1 if it is absent.
func (f *fields) oneID(key string, vocab int) int {
	l := f.ids(key, vocab)
	if len(l) > 1 {
		f.fail(key, "is a list, not one token id")
	}
	if len(l) == 0 {
		return -1
	}
	return l[0]
}
