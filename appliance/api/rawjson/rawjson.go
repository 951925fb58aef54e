// Package rawjson splits JSON text into objects, arrays, strings and integers without
// copying it. Its functions expect text that Check accepted, and return false for
// values of other types. It must not know the meaning of any field. Start reading at
// Check in check.go, then Object.
package rawjson

import (
	"bytes"
	"encoding/json"
	"strings"
	"unicode/utf8"
)

// Kind returns the first byte of a value, which identifies its type; 0 for no value.
func Kind(v []byte) byte {
	if v = trim(v); len(v) > 0 {
		return v[0]
	}
	return 0
}

// Object returns the members of an object. The values are slices of v; for a duplicate
// name the last value counts. It returns false if v is not an object or has more than
// most members.
func Object(v []byte, most int) (map[string]json.RawMessage, bool) {
	v = trim(v)
	if len(v) < 2 || v[0] != '{' {
		return nil, false
	}
	out := map[string]json.RawMessage{}
	for i, n := next(v, 1), 0; i < len(v); n++ {
		if v[i] == '}' {
			return out, next(v, i+1) == len(v)
		}
		end := skip(v, i)
		name, ok := String(v[i:end])
		i = next(v, end)
		if !ok || n == most || i >= len(v) || v[i] != ':' {
			return nil, false
		}
		i = next(v, i+1)
		if end = skip(v, i); end == i {
			return nil, false
		}
		out[name] = v[i:end:end]
		if i = next(v, end); i < len(v) && v[i] == ',' {
			i = next(v, i+1)
		}
	}
	return nil, false
}

// Array returns the elements of an array as slices of v. It returns false if v is not
// an array or has more than most elements.
func Array(v []byte, most int) ([]json.RawMessage, bool) {
	v = trim(v)
	if len(v) < 2 || v[0] != '[' {
		return nil, false
	}
	n, ok := elements(v, most, func([]byte) {})
	if !ok {
		return nil, false
	}
	out := make([]json.RawMessage, 0, n)
	elements(v, most, func(one []byte) { out = append(out, one) })
	return out, true
}

// elements calls yield for each element of an array and returns their number.
func elements(v []byte, most int, yield func([]byte)) (n int, ok bool) {
	for i := next(v, 1); i < len(v); n++ {
		if v[i] == ']' {
			return n, next(v, i+1) == len(v)
		}
		end := skip(v, i)
		if end == i || n == most {
			return n, false
		}
		yield(v[i:end:end])
		if i = next(v, end); i < len(v) && v[i] == ',' {
			i = next(v, i+1)
		}
	}
	return n, false
}

// String returns the decoded text of a string. It allocates the text once.
func String(v []byte) (string, bool) {
	v = trim(v)
	if len(v) < 2 || v[0] != '"' || v[len(v)-1] != '"' {
		return "", false
	}
	in := v[1 : len(v)-1]
	if bytes.IndexByte(in, '\\') < 0 {
		return strings.ToValidUTF8(string(in), "\uFFFD"), true
	}
	var b strings.Builder
	b.Grow(len(in))
	for len(in) > 0 {
		plain := bytes.IndexByte(in, '\\')
		if plain < 0 {
			plain = len(in)
		}
		b.Write(in[:plain])
		if in = in[plain:]; len(in) == 0 {
			break
		}
		r, n := escape(in)
		if n == 0 {
			return "", false
		}
		b.WriteRune(r)
		in = in[n:]
	}
	return strings.ToValidUTF8(b.String(), "\uFFFD"), true
}

// Ints returns the elements of an array of 32-bit integers. It allocates them once.
func Ints(v []byte) ([]int32, bool) {
	v = trim(v)
	if len(v) < 2 || v[0] != '[' || v[len(v)-1] != ']' {
		return nil, false
	}
	in := trim(v[1 : len(v)-1])
	if len(in) == 0 {
		return []int32{}, true
	}
	out := make([]int32, 0, bytes.Count(in, []byte{','})+1)
	for more := true; more; {
		var one []byte
		one, in, more = bytes.Cut(in, []byte{','})
		x, ok := integer(trim(one))
		if !ok {
			return nil, false
		}
		out = append(out, x)
	}
	return out, true
}

// integer parses a decimal integer without fraction and exponent.
func integer(b []byte) (int32, bool) {
	digits := bytes.TrimPrefix(b, []byte{'-'})
	if len(digits) == 0 || len(digits) > 10 {
		return 0, false
	}
	var x int64
	for _, c := range digits {
		if c < '0' || c > '9' {
			return 0, false
		}
		x = 10*x + int64(c-'0')
	}
	if len(digits) < len(b) {
		x = -x
	}
	return int32(x), x == int64(int32(x))
}

// escape decodes the escape sequence at the start of b and returns its length, 0 for
// none. An unpaired surrogate becomes U+FFFD.
func escape(b []byte) (r rune, n int) {
	if len(b) < 2 {
		return 0, 0
	}
	if at := strings.IndexByte(`"\/bfnrt`, b[1]); at >= 0 {
		return rune("\"\\/\b\f\n\r\t"[at]), 2
	}
	if r = hex4(b); r < 0 {
		return 0, 0
	}
	switch {
	case r < 0xD800 || r > 0xDFFF:
		return r, 6
	case r < 0xDC00:
		if low := hex4(b[6:]); low >= 0xDC00 && low <= 0xDFFF {
			return (r-0xD800)<<10 + (low - 0xDC00) + 0x10000, 12
		}
	}
	return utf8.RuneError, 6
}

// hex4 returns the number of a \uXXXX escape, −1 for none.
func hex4(b []byte) rune {
	if len(b) < 6 || b[0] != '\\' || b[1] != 'u' {
		return -1
	}
	var r rune
	for _, c := range b[2:6] {
		switch {
		case c >= '0' && c <= '9':
			c -= '0'
		case c >= 'a' && c <= 'f':
			c -= 'a' - 10
		case c >= 'A' && c <= 'F':
			c -= 'A' - 10
		default:
			return -1
		}
		r = r<<4 | rune(c)
	}
	return r
}

const space = " \t\r\n"

func trim(v []byte) []byte { return bytes.Trim(v, space) }

// next returns the index of the first byte at or after i that is not white space.
func next(v []byte, i int) int {
	for i < len(v) && strings.IndexByte(space, v[i]) >= 0 {
		i++
	}
	return i
}

// skip returns the index after the value at i; i if there is no value.
func skip(v []byte, i int) int {
	for depth := 0; i < len(v); i++ {
		switch v[i] {
		case '"':
			for i++; i < len(v) && v[i] != '"'; i++ {
				if v[i] == '\\' {
					i++
				}
			}
			if depth == 0 {
				return min(i+1, len(v))
			}
		case '{', '[':
			depth++
		case '}', ']':
			if depth == 0 {
				return i
			}
			if depth--; depth == 0 {
				return i + 1
			}
		case ',', ':', ' ', '\t', '\r', '\n':
			if depth == 0 {
				return i
			}
		}
	}
	return min(i, len(v)) // an open string may end one or two bytes behind v
}
