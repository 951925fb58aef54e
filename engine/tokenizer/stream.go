package tokenizer

import (
	"strings"
	"unicode/utf8"
)

// Stream decodes ids one at a time. What Push and Flush return, joined, is what
// Decode returns for all the ids, for byte-level and byte-fallback tokenizers; for
// a tokenizer whose decoder looks at whole sequences it is that as far as the
// decoder does not change its mind about text that was already returned. A Stream
// belongs to one goroutine.
type Stream struct {
	t       *Tokenizer
	skip    bool
	strip   int    // spaces still to be taken away
	pending []byte // bytes that are not a whole character, or not a finished run, yet
	ids     []int32
	prefix  string // text of ids[:read], already returned
	read    int
}

// NewStream starts a stream; skipSpecial leaves special tokens out of the text.
func (t *Tokenizer) NewStream(skipSpecial bool) *Stream {
	return &Stream{t: t, skip: skipSpecial, strip: t.table.strip}
}

// Push takes the next id and returns the text that is complete with it, often "".
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
		return s.stripped(s.run() + string(tab.token(id)))
	}
	s.ids = append(s.ids, id)
	return s.redecode()
}

// Flush returns the rest: U+FFFD for bytes that never became a character.
func (s *Stream) Flush() string {
	switch s.t.table.join {
	case joinBytes:
		if len(s.pending) == 0 {
			return ""
		}
		s.pending = s.pending[:0]
		return "\ufffd"
	case joinFallback:
		return s.stripped(s.run())
	}
	text, err := s.t.Decode(s.ids, s.skip)
	if err != nil || !strings.HasPrefix(text, s.prefix) {
		return ""
	}
	rest := text[len(s.prefix):]
	s.ids, s.prefix, s.read = s.ids[:0], "", 0
	return rest
}

// complete takes all whole characters from pending. What is left may still become
// one; what cannot is U+FFFD, one for each longest start of a character.
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

// badPrefix is the length of the longest start of b that could begin a character,
// 1 if none can: Unicode's "maximal subpart", one U+FFFD.
func badPrefix(b []byte) int {
	n := 1
	for n < len(b) && n < utf8.UTFMax && !utf8.FullRune(b[:n]) {
		n++
	}
	// b[:n] is full, hence invalid: its last byte does not belong to it
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

// stripped takes the spaces away that the decoder strips from the start.
func (s *Stream) stripped(text string) string {
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

// redecode decodes the ids since the last character boundary with those before
// them, and returns what is new, as Hugging Face's DecodeStream does.
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
