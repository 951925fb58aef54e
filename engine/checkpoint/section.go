package checkpoint

import "encoding/json"

// Section is an object of a config.json, for fields of one family that Config lacks. It is as
// strict as ParseConfig: Err returns the first key that is missing, of the wrong type or out of
// bounds, and later reads return zero.
type Section struct{ f *fields }

// Section returns an object of the config by its key: "vision_config". For "" it returns
// text_config, falling back to the outer object for missing keys, or the whole config if there is
// no text_config. The section is nil if the key is absent or null.
func (c Config) Section(key string) (*Section, error) {
	top, err := newFields("config.json", "", c.Raw)
	if err != nil {
		return nil, err
	}
	name := key
	if key == "" {
		name = "text_config"
	}
	v, ok := top.raw(name)
	switch {
	case !ok && key == "":
		top.useDefaults()
		return &Section{top}, nil
	case !ok:
		return nil, nil
	}
	f, err := newFields("config.json", name+".", v)
	if err != nil {
		return nil, err
	}
	if key == "" {
		f.outer = top.m
		f.useDefaults()
	}
	return &Section{f}, nil
}

// Err returns the first error.
func (s *Section) Err() error { return s.f.err }

// Has reports whether a key is present and not null.
func (s *Section) Has(key string) bool { return s.f.has(key) }

// Null reports whether a key is present and null.
func (s *Section) Null(key string) bool { return string(s.f.m[key]) == "null" }

// Count reads a required whole number in [lo, hi].
func (s *Section) Count(key string, lo, hi int64) int { return s.f.count(key, lo, hi) }

// CountOr is Count with a default for an absent key.
func (s *Section) CountOr(key string, lo, hi, absent int64) int {
	return s.f.countOr(key, lo, hi, absent)
}

// RealOr reads a number in [lo, hi], with a default for an absent key.
func (s *Section) RealOr(key string, lo, hi, absent float64) float64 {
	return s.f.realOr(key, lo, hi, absent)
}

// FlagOr reads a boolean, with a default for an absent key.
func (s *Section) FlagOr(key string, absent bool) bool { return s.f.flag(key, absent) }

// SwitchOr is FlagOr for a key that some configs give as a number, of which 0 means false.
func (s *Section) SwitchOr(key string, absent bool) bool {
	if v, ok := s.f.raw(key); ok {
		if n, ok := whole(v); ok {
			return n != 0
		}
	}
	return s.FlagOr(key, absent)
}

// Len returns the number of keys.
func (s *Section) Len() int { return len(s.f.m) }

// Counts reads a list of n whole numbers in [lo, hi]; nil for an absent key.
func (s *Section) Counts(key string, n int, lo, hi int64) []int {
	v, ok := s.f.raw(key)
	if !ok {
		return nil
	}
	var list []json.RawMessage
	if json.Unmarshal(v, &list) != nil || len(list) != n {
		s.f.fail(key, "is not a list of %d numbers", n)
		return nil
	}
	out := make([]int, n)
	for i, e := range list {
		x, ok := whole(e)
		if !ok || x < lo || x > hi {
			s.f.fail(key, "has %s at %d, allowed are whole numbers from %d to %d", clip(string(e)), i, lo, hi)
			return nil
		}
		out[i] = int(x)
	}
	return out
}

// List reads a list of whole numbers in [lo, hi]; nil for an absent key.
func (s *Section) List(key string, lo, hi int64) []int {
	v, ok := s.f.raw(key)
	if !ok {
		return nil
	}
	var list []json.RawMessage
	if json.Unmarshal(v, &list) != nil || len(list) > maxLayers {
		s.f.fail(key, "is not a list of at most %d numbers", maxLayers)
		return nil
	}
	return s.Counts(key, len(list), lo, hi)
}

// TextOr reads a short string, with a default for an absent key.
func (s *Section) TextOr(key, absent string) string { return s.f.text(key, absent) }

// Section returns a nested object, nil if the key is absent or null.
func (s *Section) Section(key string) *Section {
	v, ok := s.f.raw(key)
	if !ok {
		return nil
	}
	f, err := newFields(s.f.file, s.f.prefix+key+".", v)
	if err != nil {
		if s.f.err == nil {
			s.f.err = err
		}
		return nil
	}
	return &Section{f}
}
