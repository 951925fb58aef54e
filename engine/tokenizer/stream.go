package tokenizer

import (
	"strings"
	"unicode/utf8"
)

// Stream decodes ids one at a time. For byte-level and byte-fallback tokenizers the concatenation
// of all texts from Push and Flush equals Decode of all ids. For a tokenizer whose decoder needs
// whole sequences this holds unless later ids change text that was already returned. Only one
// goroutine may use a Stream.
type Stream struct {
	t       *Tokenizer
	skip    bool
	strip   int    // leading spaces still to strip
	pending []byte // bytes of an incomplete character or run
	ids     []int32
	prefix  string // text of ids[:read], already returned
	read    int
}

// NewStream starts a stream; skipSpecial omits special tokens from the text.
func (t *Tokenizer) NewStream(skipSpecial bool) *Stream {
	return &Stream{t: t, skip: skipSpecial, strip: t.table.strip}
}

// Push adds an id and returns the text that it completes, often "".
func (s *Stream) Push(id int32) string {
	tab := &s.t.table
	if !tab.is(id, flagKnown) || s.skip && tab.is(id, flagSpecial) {
		return ""
	}
	switch tab.join {
	case joinBytes:
		s.pending = append(s.pending, tab.token(id)...)
		return s.complete()
	case joinFallback:
		if tab.is(id, flagByte) {
			s.pending = append(s.pending, tab.token(id)...)
			return ""
		}
		return s.stripStart(s.run() + string(tab.token(id)))
	}
	s.ids = append(s.ids, id)
	return s.redecode()
}

// Flush returns the rest, with U+FFFD for incomplete characters.
func (s *Stream) Flush() string {
	switch s.t.table.join {
	case joinBytes:
		if len(s.pending) == 0 {
			return ""
		}
		s.pending = s.pending[:0]
		return "\ufffd"
	case joinFallback:
		return s.stripStart(s.run())
	}
	text, err := s.t.Decode(s.ids, s.skip)
	if err != nil || !strings.HasPrefix(text, s.prefix) {
		return ""
	}
	rest := text[len(s.prefix):]
	s.ids, s.prefix, s.read = s.ids[:0], "", 0
	return rest
}

// complete removes all whole characters from pending and returns them. The rest may still become a
// character. Invalid bytes become U+FFFD, one for each maximal prefix of a character.
func (s *Stream) complete() string {
	b := s.pending
	if utf8.Valid(b) {
		s.pending = b[:0]
		return string(b)
	}
	var out strings.Builder
	for len(b) > 0 {
		if r, n := utf8.DecodeRune(b); r != utf8.RuneError || n > 1 {
			out.Write(b[:n])
			b = b[n:]
			continue
		}
		n := badPrefix(b)
		if n == len(b) && !utf8.FullRune(b) {
			break
		}
		out.WriteRune(utf8.RuneError)
		b = b[n:]
	}
	s.pending = append(s.pending[:0], b...)
	return out.String()
}

// badPrefix returns the length of the longest prefix of b that could start a character, at least 1.
// Unicode calls it the "maximal subpart"; it becomes one U+FFFD.
func badPrefix(b []byte) int {
	n := 1
	for n < len(b) && n < utf8.UTFMax && !utf8.FullRune(b[:n]) {
		n++
	}
	// b[:n] is full, hence invalid: its last byte belongs to the next character.
	if n > 1 && utf8.FullRune(b[:n]) {
		n--
	}
	return n
}

// run ends a run of byte tokens.
func (s *Stream) run() string {
	b := s.pending
	s.pending = b[:0]
	if utf8.Valid(b) {
		return string(b)
	}
	return strings.Repeat("\ufffd", len(b))
}

// stripStart removes the spaces that the decoder strips from the start of the text.
func (s *Stream) stripStart(text string) string {
	for s.strip > 0 && text != "" {
		if text[0] != ' ' {
			s.strip = 0
			break
		}
		text = text[1:]
		s.strip--
	}
	return text
}

// redecode decodes the ids since the last character boundary together with the previous ones, and
// returns the new text, as Hugging Face's DecodeStream does.
func (s *Stream) redecode() string {
	text, err := s.t.Decode(s.ids, s.skip)
	if err != nil || len(text) <= len(s.prefix) || strings.HasSuffix(text, "\ufffd") || !strings.HasPrefix(text, s.prefix) {
		return ""
	}
	fresh := text[len(s.prefix):]
	before := s.read
	s.ids = append(s.ids[:0], s.ids[before:]...)
	s.read = len(s.ids)
	if s.prefix, err = s.t.Decode(s.ids, s.skip); err != nil {
		s.prefix = ""
	}
	return fresh
}
