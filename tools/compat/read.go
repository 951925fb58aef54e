package compat

import (
	"encoding/json"
	"strconv"
)

// object reads keys that checkpoint.Config does not have from one JSON object of a config.json, and
// keeps the first error. null counts as absent.
type object struct {
	prefix string // "config.text_config."
	m      map[string]json.RawMessage
	err    error
}

func newObject(prefix string, raw json.RawMessage) *object {
	o := &object{prefix: prefix}
	if json.Unmarshal(raw, &o.m) != nil || o.m == nil {
		o.fail("", "is not a JSON object")
	}
	return o
}

func (o *object) fail(key, format string, args ...any) {
	if o.err == nil {
		o.err = fault(o.prefix+key, format, args...)
	}
}

func (o *object) raw(key string) (json.RawMessage, bool) {
	v, ok := o.m[key]
	return v, ok && string(v) != "null"
}

// inner reads a nested object; nil where it is absent.
func (o *object) inner(key string) *object {
	v, ok := o.raw(key)
	if !ok {
		return nil
	}
	in := newObject(o.prefix+key+".", v)
	if in.err != nil && o.err == nil {
		o.err = fault(o.prefix+key, "is not a JSON object")
	}
	return in
}

// count reads a required whole number in [lo, hi].
func (o *object) count(key string, lo, hi int64) int64 {
	if _, ok := o.raw(key); !ok {
		o.fail(key, "is missing")
		return lo
	}
	return o.countOr(key, lo, hi, lo)
}

// countOr is count with a value for an absent key.
func (o *object) countOr(key string, lo, hi, absent int64) int64 {
	v, ok := o.raw(key)
	if !ok {
		return absent
	}
	x, err := strconv.ParseFloat(string(v), 64)
	if err != nil || x != float64(int64(x)) {
		o.fail(key, "is %s, not a whole number", clip(string(v)))
		return lo
	}
	if x < float64(lo) || x > float64(hi) {
		o.fail(key, "is %s, allowed are %d to %d", clip(string(v)), lo, hi)
		return lo
	}
	return int64(x)
}

// list reads a list of at most some whole numbers.
func (o *object) list(key string, most int) []int64 {
	v, ok := o.raw(key)
	if !ok {
		return nil
	}
	var list []int64
	if json.Unmarshal(v, &list) != nil || len(list) > most {
		o.fail(key, "is not a list of at most %d whole numbers", most)
		return nil
	}
	return list
}

// counts reads a list of whole numbers below limit as a set.
func (o *object) counts(key string, limit int64) map[int64]bool {
	set := map[int64]bool{}
	for _, n := range o.list(key, int(limit)) {
		if n < 0 || n >= limit {
			o.fail(key, "has %d, allowed are 0 to %d", n, limit-1)
			return nil
		}
		set[n] = true
	}
	return set
}

func (o *object) flag(key string, absent bool) bool {
	v, ok := o.raw(key)
	if !ok {
		return absent
	}
	if s := string(v); s != "true" && s != "false" {
		o.fail(key, "is %s, not true or false", clip(s))
	}
	return string(v) == "true"
}

func (o *object) text(key string) string {
	v, ok := o.raw(key)
	if !ok {
		return ""
	}
	var s string
	if json.Unmarshal(v, &s) != nil || len(s) > 256 {
		o.fail(key, "is %s, not a short string", clip(string(v)))
	}
	return s
}

// texts reads a list of at most 4096 short strings.
func (o *object) texts(key string) []string {
	v, ok := o.raw(key)
	if !ok {
		return nil
	}
	var l []string
	if json.Unmarshal(v, &l) != nil || len(l) > 4096 {
		o.fail(key, "is not a list of at most 4096 strings")
		return nil
	}
	for _, s := range l {
		if len(s) > 512 {
			o.fail(key, "has an entry of %d bytes", len(s))
			return nil
		}
	}
	return l
}
