package dialect

import "encoding/json"

// follower validates one JSON value byte by byte. It checks the structure but not the
// syntax of numbers, and it allows line ends in strings because models write them.
type follower struct {
	stack []byte // open brackets
	at    place
	word  string // the rest of true, false or null
	hex   int    // digits of \u that must follow
}

// place is the position of a follower within a value.
type place uint8

const (
	wantValue  place = iota
	wantFirst        // a value or "]"
	wantKey          // a string
	firstKey         // a string or "}"
	inKey            // within the quotes
	wantColon        //
	inString         //
	inEscape         // after \ of a string
	keyEscape        // after \ of a key
	inNumber         //
	inWord           // true, false, null
	afterValue       // "," or a closing bracket; at depth 0 the value is complete
)

func (f *follower) depth() int { return len(f.stack) }

// over reports whether the value is complete.
func (f *follower) over() bool { return f.at == afterValue && len(f.stack) == 0 }

// quoted reports whether the next byte is part of a string.
func (f *follower) quoted() bool {
	return f.at == inString || f.at == inKey || f.at == inEscape || f.at == keyEscape
}

// next reads a byte and reports whether it is valid at this point. A number at depth 0 ends
// before the first byte that is not part of it: at is afterValue then, and the byte is not
// consumed.
func (f *follower) next(c byte) bool {
	switch f.at {
	case inString, inKey:
		return f.char(c)
	case inEscape, keyEscape:
		return f.escape(c)
	case inWord:
		if f.word == "" || f.word[0] != c {
			return false
		}
		if f.word = f.word[1:]; f.word == "" {
			f.at = afterValue
		}
		return true
	case inNumber:
		if numeric(c) {
			return true
		}
		f.at = afterValue
		return f.over() || f.next(c)
	}
	if c == ' ' || c == '\n' || c == '\t' || c == '\r' {
		return true
	}
	return f.structure(c)
}

// numeric reports whether c may be part of a number.
func numeric(c byte) bool {
	return c >= '0' && c <= '9' || c == '-' || c == '+' || c == '.' || c == 'e' || c == 'E'
}

// char reads a byte of a string or key.
func (f *follower) char(c byte) bool {
	switch {
	case c == '\\' && f.at == inKey:
		f.at = keyEscape
	case c == '\\':
		f.at = inEscape
	case c == '"' && f.at == inKey:
		f.at = wantColon
	case c == '"':
		f.at = afterValue
	}
	return true
}

// escape reads a byte after a backslash.
func (f *follower) escape(c byte) bool {
	switch {
	case f.hex > 0:
		if !(c >= '0' && c <= '9' || c >= 'a' && c <= 'f' || c >= 'A' && c <= 'F') {
			return false
		}
		f.hex--
	case c == 'u':
		f.hex = 4
	case c != '"' && c != '\\' && c != '/' && c != 'b' && c != 'f' && c != 'n' && c != 'r' && c != 't':
		return false
	}
	if f.hex == 0 {
		f.at = map[place]place{inEscape: inString, keyEscape: inKey}[f.at]
	}
	return true
}

// structure reads a byte outside strings, numbers and literals that is not white space.
func (f *follower) structure(c byte) bool {
	switch f.at {
	case wantFirst, wantValue:
		if c == ']' && f.at == wantFirst {
			return f.pop('[')
		}
		return f.value(c)
	case firstKey, wantKey:
		if c == '}' && f.at == firstKey {
			return f.pop('{')
		}
		f.at = inKey
		return c == '"'
	case wantColon:
		f.at = wantValue
		return c == ':'
	}
	switch { // after a value
	case len(f.stack) == 0:
		return false
	case c == ',' && f.stack[len(f.stack)-1] == '{':
		f.at = wantKey
	case c == ',':
		f.at = wantValue
	case c == '}':
		return f.pop('{')
	case c == ']':
		return f.pop('[')
	default:
		return false
	}
	return true
}

// value reads the first byte of a value.
func (f *follower) value(c byte) bool {
	switch {
	case c == '{':
		f.stack, f.at = append(f.stack, c), firstKey
	case c == '[':
		f.stack, f.at = append(f.stack, c), wantFirst
	case c == '"':
		f.at = inString
	case c == '-' || c >= '0' && c <= '9':
		f.at = inNumber
	case c == 't':
		f.at, f.word = inWord, "rue"
	case c == 'f':
		f.at, f.word = inWord, "alse"
	case c == 'n':
		f.at, f.word = inWord, "ull"
	default:
		return false
	}
	return true
}

// pop closes the bracket open.
func (f *follower) pop(open byte) bool {
	n := len(f.stack)
	if n == 0 || f.stack[n-1] != open {
		return false
	}
	f.stack, f.at = f.stack[:n-1], afterValue
	return true
}

// unquote parses a JSON string; ok is false if b is not one.
func unquote(b []byte) (s string, ok bool) {
	return s, json.Unmarshal(b, &s) == nil && len(b) > 0 && b[0] == '"'
}

// quote writes a JSON string as Python's json.dumps does with ensure_ascii=False.
func quote(s string) string { return string(appendQuoted(nil, s)) }

// appendQuoted appends a JSON string with its quotes.
func appendQuoted(b []byte, s string) []byte {
	b = append(b, '"')
	return append(appendEscaped(b, s), '"')
}

// appendEscaped appends a JSON string without its quotes.
func appendEscaped(b []byte, s string) []byte {
	const digits = "0123456789abcdef"
	for i := 0; i < len(s); i++ {
		switch c := s[i]; {
		case c == '"' || c == '\\':
			b = append(b, '\\', c)
		case c == '\n':
			b = append(b, '\\', 'n')
		case c == '\t':
			b = append(b, '\\', 't')
		case c == '\r':
			b = append(b, '\\', 'r')
		case c == '\b':
			b = append(b, '\\', 'b')
		case c == '\f':
			b = append(b, '\\', 'f')
		case c < 0x20:
			b = append(b, '\\', 'u', '0', '0', digits[c>>4], digits[c&15])
		default:
			b = append(b, c)
		}
	}
	return b
}
