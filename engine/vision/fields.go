package vision

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"math"
)

// ConfigError reports a field of a processor's config, or an option of a request, that is not
// supported.
type ConfigError struct {
	Field  string // with the name of its file or object: preprocessor_config.json: do_resize
	Reason string // what is wrong with it and what is supported
}

func (e *ConfigError) Error() string { return e.Field + ": " + e.Reason }

// fields reads a JSON object. Absent and null fields have the default of transformers' processor.
// err is the first error.
type fields struct {
	where string
	in    map[string]json.RawMessage
	err   error
}

func parseFields(where string, data []byte) *fields {
	f := &fields{where: where}
	if err := json.Unmarshal(data, &f.in); err != nil || f.in == nil {
		f.fail("", "it is not a JSON object")
	}
	return f
}

// with returns the fields with those of over in place of their own.
func (f *fields) with(over map[string]json.RawMessage) *fields {
	in := maps.Clone(f.in)
	if in == nil {
		in = map[string]json.RawMessage{}
	}
	maps.Copy(in, over)
	return &fields{where: "mm_processor_kwargs", in: in}
}

func (f *fields) fail(key, format string, args ...any) {
	if f.err != nil {
		return
	}
	name := f.where
	if key != "" {
		name += ": " + key
	}
	f.err = &ConfigError{name, fmt.Sprintf(format, args...)}
}

// has returns whether the field is there and is not null.
func (f *fields) has(key string) bool {
	raw := bytes.TrimSpace(f.in[key])
	return len(raw) > 0 && string(raw) != "null"
}

// read decodes a field, if it is there.
func (f *fields) read(key, kind string, into any) bool {
	if !f.has(key) {
		return false
	}
	if json.Unmarshal(f.in[key], into) != nil {
		f.fail(key, "%.40s is not %s", f.in[key], kind)
		return false
	}
	return true
}

// object returns the fields of an object, nil if it is absent.
func (f *fields) object(key string) *fields {
	if !f.has(key) {
		return nil
	}
	return parseFields(f.where+": "+key, f.in[key])
}

// whole returns a whole number from least to most.
func (f *fields) whole(key string, least, most, absent int) int {
	v := float64(absent)
	if f.read(key, "a number", &v) && (v != math.Trunc(v) || v < float64(least) || v > float64(most)) {
		f.fail(key, "%v is not a whole number from %d to %d", v, least, most)
		return absent
	}
	return int(v)
}

// real returns a number that is positive and at most most.
func (f *fields) real(key string, most, absent float64) float64 {
	v := absent
	if f.read(key, "a number", &v) && (v <= 0 || v > most) {
		f.fail(key, "%v is not above 0 and at most %v", v, most)
		return absent
	}
	return v
}

func (f *fields) flag(key string, absent bool) bool {
	v := absent
	f.read(key, "true or false", &v)
	return v
}

// must fails unless the flag is want.
func (f *fields) must(key string, want, absent bool) {
	if f.flag(key, absent) != want {
		f.fail(key, "it is %t; only %t is supported", !want, want)
	}
}

func (f *fields) text(key string) string {
	var v string
	f.read(key, "a text", &v)
	return v
}

// each fails unless the field, a number or a list of three, is want in each channel.
func (f *fields) each(key string, want, absent float64) {
	v, all := absent, []float64{absent, absent, absent}
	if raw := bytes.TrimSpace(f.in[key]); len(raw) > 0 && raw[0] == '[' {
		f.read(key, "a list of numbers", &all)
	} else if f.read(key, "a number or a list", &v) {
		all = []float64{v, v, v}
	}
	for _, v := range all {
		if len(all) != 3 || v != want {
			f.fail(key, "%v; only %v for each of three channels is supported", all, want)
			return
		}
	}
}

// only fails if over has a key that is not one of known.
func (f *fields) only(over map[string]json.RawMessage, known map[string]bool) {
	for _, key := range sortedKeys(over) {
		if !known[key] {
			f.fail(key, "it is not an option of this model's processor; its options are %s", list(known))
		}
	}
}
