package checkpoint

// Section is one object of a config.json, for the words of a family that Config
// has no field for. It reads as strictly as ParseConfig: the first key that is
// missing, of another kind or out of bounds is Err, and later reads give zero.
type Section struct{ f *fields }

// Section returns an object of the config by its key: "vision_config". Of ""
// it is text_config, with the outer object for keys that it lacks, or the whole
// config where there is none. The section is nil where the key is absent or null.
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
	}
	return &Section{f}, nil
}

// Err is the first thing that was wrong.
func (s *Section) Err() error { return s.f.err }

// Has says that a key is there and not null.
func (s *Section) Has(key string) bool { return s.f.has(key) }

// Count reads a whole number in [lo, hi] that must be there.
func (s *Section) Count(key string, lo, hi int64) int { return s.f.count(key, lo, hi) }

// CountOr is Count with a value for an absent key.
func (s *Section) CountOr(key string, lo, hi, absent int64) int {
	return s.f.countOr(key, lo, hi, absent)
}

// RealOr reads a number in [lo, hi], with a value for an absent key.
func (s *Section) RealOr(key string, lo, hi, absent float64) float64 {
	return s.f.realOr(key, lo, hi, absent)
}

// FlagOr reads true or false, with a value for an absent key.
func (s *Section) FlagOr(key string, absent bool) bool { return s.f.flag(key, absent) }

// Len is how many keys the object has.
func (s *Section) Len() int { return len(s.f.m) }

// TextOr reads a short string, with a value for an absent key.
func (s *Section) TextOr(key, absent string) string { return s.f.text(key, absent) }

// Section returns an object inside this one, nil where the key is absent or null.
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
