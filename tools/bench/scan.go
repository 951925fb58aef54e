package bench

import (
	"bytes"
	"errors"
	"strconv"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"
)

// scanner walks over one JSON value without building it, because a client of hundreds of streams
// has microseconds per chunk. It accepts what encoding/json accepts.
type scanner struct {
	b []byte
	i int
}

var errJSON = errors.New("not JSON")

// maxDepth bounds nesting.
const maxDepth = 200

func (s *scanner) space() {
	for s.i < len(s.b) && (s.b[s.i] == ' ' || s.b[s.i] == '\n' || s.b[s.i] == '\t' || s.b[s.i] == '\r') {
		s.i++
	}
}

// peek returns the next byte that is not a space, 0 at the end.
func (s *scanner) peek() byte {
	s.space()
	if s.i < len(s.b) {
		return s.b[s.i]
	}
	return 0
}

// eat consumes c if it is next.
func (s *scanner) eat(c byte) bool {
	if s.peek() != c || s.i >= len(s.b) {
		return false
	}
	s.i++
	return true
}

// object calls each for every key, with the scanner at the value, which each must consume.
func (s *scanner) object(each func(key []byte) error) error {
	if !s.eat('{') {
		return errJSON
	}
	if s.eat('}') {
		return nil
	}
	for {
		s.space()
		key, err := s.text()
		if err != nil {
			return err
		}
		if !s.eat(':') {
			return errJSON
		}
		if err := each(key); err != nil {
			return err
		}
		if s.eat('}') {
			return nil
		}
		if !s.eat(',') {
			return errJSON
		}
	}
}

// array calls each for every element, with the scanner at the element.
func (s *scanner) array(each func(i int) error) error {
	if !s.eat('[') {
		return errJSON
	}
	if s.eat(']') {
		return nil
	}
	for n := 0; ; n++ {
		if err := each(n); err != nil {
			return err
		}
		if s.eat(']') {
			return nil
		}
		if !s.eat(',') {
			return errJSON
		}
	}
}

// text consumes a string and returns the bytes between the quotes, with escapes.
func (s *scanner) text() ([]byte, error) {
	if s.i >= len(s.b) || s.b[s.i] != '"' {
		return nil, errJSON
	}
	start := s.i + 1
	for i := start; i < len(s.b); i++ {
		switch c := s.b[i]; {
		case c == '"':
			s.i = i + 1
			return s.b[start:i], nil
		case c < ' ':
			return nil, errJSON
		case c == '\\':
			n := escape(s.b[i+1:])
			if n == 0 {
				return nil, errJSON
			}
			i += n
		}
	}
	return nil, errJSON
}

// escape returns the number of bytes that follow a backslash; 0: no valid escape.
func escape(b []byte) int {
	if len(b) == 0 {
		return 0
	}
	if b[0] != 'u' {
		if bytes.IndexByte([]byte(`"\/bfnrt`), b[0]) < 0 {
			return 0
		}
		return 1
	}
	if len(b) < 5 || hex4(b[1:5]) < 0 {
		return 0
	}
	return 5
}

func hex4(b []byte) rune {
	var r rune
	for _, c := range b[:4] {
		switch {
		case '0' <= c && c <= '9':
			c -= '0'
		case 'a' <= c && c <= 'f':
			c -= 'a' - 10
		case 'A' <= c && c <= 'F':
			c -= 'A' - 10
		default:
			return -1
		}
		r = r<<4 | rune(c)
	}
	return r
}

// skip consumes any value.
func (s *scanner) skip(depth int) error {
	if depth > maxDepth {
		return errJSON
	}
	switch c := s.peek(); {
	case c == '"':
		_, err := s.text()
		return err
	case c == '{':
		return s.object(func([]byte) error { return s.skip(depth + 1) })
	case c == '[':
		return s.array(func(int) error { return s.skip(depth + 1) })
	case c == '-' || '0' <= c && c <= '9':
		_, err := s.number()
		return err
	}
	for _, word := range []string{"null", "true", "false"} {
		if bytes.HasPrefix(s.b[s.i:], []byte(word)) {
			s.i += len(word)
			return nil
		}
	}
	return errJSON
}

// number consumes a number.
func (s *scanner) number() (float64, error) {
	s.space()
	start := s.i
	s.one("-")
	if !s.one("0") && s.digits() == 0 {
		return 0, errJSON
	}
	if s.one(".") && s.digits() == 0 {
		return 0, errJSON
	}
	if s.one("eE") {
		s.one("+-")
		if s.digits() == 0 {
			return 0, errJSON
		}
	}
	x, err := strconv.ParseFloat(string(s.b[start:s.i]), 64)
	if err != nil && !errors.Is(err, strconv.ErrRange) {
		return 0, errJSON
	}
	return x, nil
}

// one consumes a byte of the set.
func (s *scanner) one(set string) bool {
	if s.i < len(s.b) && bytes.IndexByte([]byte(set), s.b[s.i]) >= 0 {
		s.i++
		return true
	}
	return false
}

func (s *scanner) digits() int {
	start := s.i
	for s.i < len(s.b) && '0' <= s.b[s.i] && s.b[s.i] <= '9' {
		s.i++
	}
	return s.i - start
}

// unquote appends the decoded text of a string to dst; invalid UTF-8 becomes U+FFFD.
func unquote(dst, inside []byte) []byte {
	if bytes.IndexByte(inside, '\\') < 0 {
		if utf8.Valid(inside) {
			return append(dst, inside...)
		}
		return append(dst, bytes.ToValidUTF8(inside, []byte("\uFFFD"))...)
	}
	for i := 0; i < len(inside); {
		if inside[i] != '\\' {
			r, n := utf8.DecodeRune(inside[i:])
			dst, i = utf8.AppendRune(dst, r), i+n
			continue
		}
		if inside[i+1] != 'u' {
			dst, i = append(dst, "\"\\/\b\f\n\r\t"[bytes.IndexByte([]byte(`"\/bfnrt`), inside[i+1])]), i+2
			continue
		}
		r := hex4(inside[i+2:])
		i += 6
		if utf16.IsSurrogate(r) {
			pair := rune(unicode.ReplacementChar)
			if i+6 <= len(inside) && inside[i] == '\\' && inside[i+1] == 'u' {
				if pair = utf16.DecodeRune(r, hex4(inside[i+2:])); pair != unicode.ReplacementChar {
					i += 6
				}
			}
			r = pair
		}
		dst = utf8.AppendRune(dst, r)
	}
	return dst
}
