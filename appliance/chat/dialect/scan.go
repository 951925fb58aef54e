package dialect

import "strings"

// machine is the parser state of a dialect. The scanner splits the text at markers and
// passes it on piece by piece. The result of a machine must not depend on how the text is
// split.
type machine interface {
	// markers returns the markers that are valid in the current state. The set changes
	// only in mark, and no marker is a prefix of another.
	markers() []string
	// text parses the next piece, which is not empty.
	text(s string)
	// mark parses one of markers.
	mark(m string)
	// end ends the text. cut: the text was cut off.
	end(cut bool)
}

// scanner finds markers in a text that arrives in pieces. It holds back the longest suffix
// that may still become a marker.
type scanner struct {
	m     machine
	token func(marker string) bool // markers that are tokens and not text
	held  string
}

// feed scans the next piece.
func (s *scanner) feed(piece string) {
	s.held += piece
	for s.held != "" {
		at, m := s.find()
		if m == "" {
			s.release(len(s.held) - s.keep())
			return
		}
		s.release(at)
		s.held = s.held[len(m):]
		s.m.mark(m)
	}
}

// mark passes on a marker that was a token. A marker that is not valid in the current state
// is text.
func (s *scanner) mark(m string) {
	s.release(len(s.held))
	for _, x := range s.m.markers() {
		if x == m {
			s.m.mark(m)
			return
		}
	}
	s.m.text(m)
}

// end ends the text. If the text was cut off, an incomplete marker at its end is dropped: at
// least half of a marker or five bytes of it, and inside markup any part.
func (s *scanner) end(cut, markup bool) {
	for _, m := range s.m.markers() {
		if cut && !s.token(m) && (markup || len(s.held) >= min(5, (len(m)+1)/2)) && strings.HasPrefix(m, s.held) {
			s.held = ""
		}
	}
	s.release(len(s.held))
	s.m.end(cut)
}

// release passes the first n held bytes on as text.
func (s *scanner) release(n int) {
	if n > 0 {
		t := s.held[:n]
		s.held = s.held[n:]
		s.m.text(t)
	}
}

// find returns the first marker in the held text and its position.
func (s *scanner) find() (at int, marker string) {
	at = len(s.held)
	for _, m := range s.m.markers() {
		if s.token(m) {
			continue
		}
		if i := strings.Index(s.held[:min(len(s.held), at+len(m))], m); i >= 0 && i < at {
			at, marker = i, m
		}
	}
	return at, marker
}

// keep returns the number of bytes at the end that may still become a marker.
func (s *scanner) keep() int {
	keep := 0
	for _, m := range s.m.markers() {
		if s.token(m) {
			continue
		}
		for n := min(len(m)-1, len(s.held)); n > keep; n-- {
			if strings.HasSuffix(s.held, m[:n]) {
				keep = n
			}
		}
	}
	return keep
}
