package dialect

import "strings"

// machine is the state of a dialect. The scanner cuts a text at the markers and
// hands it over piece by piece; what a machine makes of a text must not depend on
// how it is cut.
type machine interface {
	// markers are those that mean something now; the set changes in mark alone,
	// and none is the beginning of another one.
	markers() []string
	// text takes the next piece, never an empty one.
	text(s string)
	// mark takes one of markers.
	mark(m string)
	// end says that nothing follows; cut, that more would have.
	end(cut bool)
}

// scanner finds markers in a text that comes in pieces. It holds back the longest
// end of the text that may still become a marker.
type scanner struct {
	m     machine
	token func(marker string) bool // those that are no text
	held  string
}

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

// mark takes a marker that came as a token; where it means nothing it is text.
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

// end ends the text. Where it was cut, half of a marker or five bytes of it are
// markup, and within markup any of it.
func (s *scanner) end(cut, markup bool) {
	for _, m := range s.m.markers() {
		if cut && !s.token(m) && (markup || len(s.held) >= min(5, (len(m)+1)/2)) && strings.HasPrefix(m, s.held) {
			s.held = ""
		}
	}
	s.release(len(s.held))
	s.m.end(cut)
}

// release hands the first n bytes over as text.
func (s *scanner) release(n int) {
	if n > 0 {
		t := s.held[:n]
		s.held = s.held[n:]
		s.m.text(t)
	}
}

// find is the first marker in what is held.
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

// keep is how many bytes at the end may still become a marker.
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
