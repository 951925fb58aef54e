package importer

import (
	"strings"
	"unicode/utf8"
)

func firstRune(s string) (rune, int) { return utf8.DecodeRuneInString(s) }

// reference reads what a shell would expand: $NAME, ${NAME}, ${NAME:-else}, $(command) and
// `command`; and $'text', which is literal text. rest begins with the dollar sign or the backquote.
func (s *shell) reference(rest string, quoted bool) error {
	ref := part{ref: true, quoted: quoted}
	switch {
	case rest[0] == '`':
		n := strings.IndexByte(rest[1:], '`')
		if n < 0 {
			return s.open("`")
		}
		ref.text = rest[:n+2]
	case strings.HasPrefix(rest, "$("):
		n := closing(rest[1:], '(', ')')
		if n < 0 {
			return s.open("$(")
		}
		ref.text = rest[:n+2]
	case strings.HasPrefix(rest, "${"):
		n := closing(rest[1:], '{', '}')
		if n < 0 {
			return s.open("${")
		}
		ref.text = rest[:n+2]
		ref.braces(rest[2 : n+1])
	case strings.HasPrefix(rest, "$'") && !quoted:
		return s.ansi(rest)
	default:
		n := nameLen(rest[1:])
		if n == 0 && len(rest) > 1 && strings.IndexByte("@*#?$!0123456789-", rest[1]) >= 0 {
			n = 1
		} else if n > 0 {
			ref.name = rest[1 : 1+n]
		}
		if n == 0 { // a literal dollar sign
			s.literal("$", true)
			s.pos++
			return nil
		}
		ref.text = rest[:1+n]
	}
	if s.begun == 0 {
		s.begun = s.line
	}
	s.flush()
	s.parts = append(s.parts, ref)
	s.line += strings.Count(ref.text, "\n")
	s.pos += len(ref.text)
	return nil
}

// braces reads the inside of ${…}: a name, or a name with a literal fallback.
func (p *part) braces(in string) {
	n := nameLen(in)
	switch rest := in[n:]; {
	case n == 0:
	case rest == "":
		p.name = in[:n]
	case strings.HasPrefix(rest, ":-") || strings.HasPrefix(rest, "-"):
		value := strings.TrimPrefix(strings.TrimPrefix(rest, ":"), "-")
		if !strings.ContainsAny(value, "$`\\'\"") {
			p.name, p.fallback, p.has = in[:n], value, true
		}
	}
}

// ansi reads $'…' with the escapes for newline, tab, backslash and quotes.
func (s *shell) ansi(rest string) error {
	var b strings.Builder
	for i := 2; i < len(rest); i++ {
		switch c := rest[i]; {
		case c == '\'':
			s.literal(b.String(), true)
			s.line += strings.Count(rest[:i], "\n")
			s.pos += i + 1
			return nil
		case c == '\\' && i+1 < len(rest):
			i++
			switch e := rest[i]; e {
			case 'n':
				b.WriteByte('\n')
			case 't':
				b.WriteByte('\t')
			case '\\', '\'', '"':
				b.WriteByte(e)
			default:
				b.WriteByte('\\')
				b.WriteByte(e)
			}
		default:
			b.WriteByte(c)
		}
	}
	return s.open("$'")
}

// closing returns the index of the bracket that closes the one at the start of s, or -1.
func closing(s string, open, shut byte) int {
	depth := 0
	for i := 0; i < len(s); i++ {
		switch s[i] {
		case open:
			depth++
		case shut:
			if depth--; depth == 0 {
				return i
			}
		}
	}
	return -1
}

// nameLen returns the length of the variable name at the start of s.
func nameLen(s string) int {
	for i := 0; i < len(s); i++ {
		c := s[i]
		letter := c == '_' || 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z'
		if !letter && (i == 0 || c < '0' || c > '9') {
			return i
		}
	}
	return len(s)
}
