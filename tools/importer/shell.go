package importer

import "strings"

// source is the origin of a text, which gives its words their places.
type source struct {
	name   string
	line   int  // number of lines before the text
	single bool // one line given as an argument: words are counted, not lines
	fixed  bool // the text is part of one line of its file: all its words have that line
	depth  int  // number of enclosing shells
}

// place returns the place of a line of the text.
func (at source) place(line int) Place {
	switch {
	case at.single:
		return Place{}
	case at.fixed:
		return Place{Name: at.name, Line: at.line + 1}
	}
	return Place{Name: at.name, Line: at.line + line}
}

// part is a part of a word: literal text, or a reference that a shell would expand.
type part struct {
	text     string // literal, or the reference as written
	ref      bool
	name     string // of the variable; "": a command or another reference that cannot be expanded here
	fallback string // value of ${name:-fallback}
	has      bool   // there is a fallback
	quoted   bool   // inside quotes: not split at blanks
}

// rawWord is a word before expansion.
type rawWord struct {
	parts []part
	line  int // line of its first character
}

// shell splits a script into commands at ; & | newlines and parentheses, and commands into words,
// by the rules of a POSIX shell for quotes, backslashes, comments and references. It drops
// redirections.
type shell struct {
	src      string
	at       source
	pos      int
	line     int
	out      [][]rawWord
	words    []rawWord
	parts    []part
	buf      []byte // literal text that is not in parts yet
	quoted   bool   // buf was quoted
	begun    int    // line of the current word, which may be empty; 0: no word
	redirect bool   // the next word is the target of a redirection
}

// parseScript returns the commands of a text. Its error is an *Error.
func parseScript(text string, at source) ([][]rawWord, error) {
	s := &shell{src: text, line: 1, at: at}
	for s.pos < len(s.src) {
		if err := s.next(); err != nil {
			return nil, err
		}
	}
	s.endCommand()
	return s.out, nil
}

// special are the bytes with a meaning outside quotes.
const special = " \t\r\n;&|()<>#\\'\"$`"

func (s *shell) next() error {
	rest := s.src[s.pos:]
	if n := strings.IndexAny(rest, special); n != 0 {
		if n < 0 {
			n = len(rest)
		}
		s.literal(rest[:n], false)
		s.pos += n
		return nil
	}
	switch rest[0] {
	case '\\':
		return s.backslash(rest)
	case '\'':
		return s.single(rest[1:])
	case '"':
		return s.double()
	case '$', '`':
		return s.reference(rest, false)
	case '<', '>':
		return s.redirection(rest)
	case '#':
		s.comment(rest)
		return nil
	case '&':
		if strings.HasPrefix(rest, "&>") { // redirects both outputs
			s.endWord()
		} else {
			s.endCommand()
		}
	case ' ', '\t', '\r':
		s.endWord()
	default: // ; | ( ) and the end of the line
		s.endCommand()
	}
	s.pos++
	if rest[0] == '\n' {
		s.line++
	}
	return nil
}

func (s *shell) comment(rest string) {
	switch n := strings.IndexByte(rest, '\n'); {
	case s.begun > 0: // inside a word # is literal
		s.literal("#", false)
		s.pos++
	case n < 0:
		s.pos = len(s.src)
	default:
		s.pos += n
	}
}

// backslash handles an escaped character or a joined line.
func (s *shell) backslash(rest string) error {
	switch blanks := len(rest[1:]) - len(strings.TrimLeft(rest[1:], " \t")); {
	case len(rest) == 1:
		return failure(Syntax, s.at.place(s.line), "take the backslash away", "the text ends after a backslash")
	case rest[1] == '\n':
		s.line++
	case blanks > 0 && (len(rest) == 1+blanks || rest[1+blanks] == '\n'):
		return failure(Syntax, s.at.place(s.line), "take the blanks away", "blanks follow the backslash at the end of the line: a shell would end the command here")
	default:
		_, n := firstRune(rest[1:])
		s.literal(rest[1:1+n], true)
		s.pos += n - 1
	}
	s.pos += 2
	return nil
}

func (s *shell) single(rest string) error {
	n := strings.IndexByte(rest, '\'')
	if n < 0 {
		return s.open("'")
	}
	s.literal(rest[:n], true)
	s.line += strings.Count(rest[:n], "\n")
	s.pos += n + 2
	return nil
}

func (s *shell) open(quote string) error {
	return failure(Syntax, s.at.place(s.line), "close it", "a %s is open to the end of the text", quote)
}

// double reads to the closing double quote; $, ` and \ keep their meaning.
func (s *shell) double() error {
	start := s.line
	s.literal("", true)
	for s.pos++; s.pos < len(s.src); {
		rest := s.src[s.pos:]
		n := strings.IndexAny(rest, "\"\\$`")
		if n < 0 {
			break
		}
		s.literal(rest[:n], true)
		s.line += strings.Count(rest[:n], "\n")
		s.pos += n
		switch rest = rest[n:]; rest[0] {
		case '"':
			s.pos++
			return nil
		case '\\':
			s.doubleEscape(rest)
		default:
			if err := s.reference(rest, true); err != nil {
				return err
			}
		}
	}
	s.line = start
	return s.open(`"`)
}

// doubleEscape handles a backslash inside double quotes: it escapes $ ` " \ and joins lines, and is
// literal before any other character.
func (s *shell) doubleEscape(rest string) {
	switch {
	case len(rest) == 1:
		s.pos++
		return
	case rest[1] == '\n':
		s.line++
	case strings.IndexByte("$`\"\\", rest[1]) >= 0:
		s.literal(rest[1:2], true)
	default:
		s.literal(`\`, true)
		s.pos++
		return
	}
	s.pos += 2
}

// redirection drops the operator, the number before it and its target.
func (s *shell) redirection(rest string) error {
	op := rest[:len(rest)-len(strings.TrimLeft(rest, "<>&|"))]
	after := strings.TrimPrefix(rest[len(op):], "(")
	if strings.HasPrefix(op, "<<") || len(after) < len(rest)-len(op) {
		return failure(Syntax, s.at.place(s.line), "give the command without it", "%q: here-documents and inner commands are not read", op)
	}
	if len(s.parts) == 0 && !s.quoted && strings.Trim(string(s.buf), "0123456789") == "" {
		s.buf, s.begun = nil, 0
	}
	s.endWord()
	s.pos += len(op)
	s.redirect = true
	return nil
}

// literal appends to the current word.
func (s *shell) literal(text string, quoted bool) {
	if s.begun == 0 {
		s.begun = s.line
	}
	if quoted != s.quoted {
		s.flush()
		s.quoted = quoted
	}
	s.buf = append(s.buf, text...)
}

func (s *shell) flush() {
	if len(s.buf) > 0 {
		s.parts = append(s.parts, part{text: string(s.buf), quoted: s.quoted})
	}
	s.buf = s.buf[:0]
}

func (s *shell) endWord() {
	if s.begun == 0 {
		return
	}
	s.flush()
	if !s.redirect {
		s.words = append(s.words, rawWord{parts: s.parts, line: s.begun})
	}
	s.parts, s.begun, s.quoted, s.redirect = nil, 0, false, false
}

func (s *shell) endCommand() {
	s.endWord()
	s.redirect = false
	if len(s.words) > 0 {
		s.out = append(s.out, s.words)
	}
	s.words = nil
}
