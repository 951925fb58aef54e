package chat

// maxStops bounds the stop strings of a request: every byte of the reply is
// compared with each of them.
const maxStops = 1024

// maxStopBytes bounds them in all: each choice has four bytes of tables for each.
const maxStopBytes = 1 << 14

// maxBadWordBytes bounds bad_words in all: each is encoded twice, before the request is
// queued.
const maxBadWordBytes = 1 << 16

// scanner looks for stop strings in a text that comes in pieces. What it gives
// back does not depend on how the text is cut: the first byte at which any stop
// string is complete ends the text, and of several that end there the first in
// the list is the reason. Until then it holds back the longest suffix that may
// still become a stop string.
type scanner struct {
	stops   []matcher
	include bool   // the text ends after the stop string, and nothing is held back
	held    []byte // read and not yet given out
	hit     int    // which stop string ended the text, -1: none yet
}

// matcher follows one stop string through a text by its border table, as in
// Knuth, Morris and Pratt: one comparison a byte, amortised.
type matcher struct {
	stop   string
	border []int32 // border[i]: longest proper prefix of stop[:i+1] that is its suffix
	at     int32   // bytes of stop that the text now ends with
}

func newScanner(stops []string, include bool) *scanner {
	s := &scanner{include: include, hit: -1}
	for _, stop := range stops {
		s.stops = append(s.stops, matcher{stop: stop, border: borders(stop)})
	}
	return s
}

func borders(s string) []int32 {
	b := make([]int32, len(s))
	for i := 1; i < len(s); i++ {
		k := b[i-1]
		for k > 0 && s[i] != s[k] {
			k = b[k-1]
		}
		if s[i] == s[k] {
			k++
		}
		b[i] = k
	}
	return b
}

// next takes one byte and reports whether the stop string is now complete.
func (m *matcher) next(c byte) bool {
	n := int32(len(m.stop))
	if m.at == n {
		m.at = m.border[n-1]
	}
	for m.at > 0 && m.stop[m.at] != c {
		m.at = m.border[m.at-1]
	}
	if m.stop[m.at] == c {
		m.at++
	}
	return m.at == n
}

// push takes the next piece and returns the text that is now certain. stopped
// says that a stop string ended the text; what follows it in the piece is lost
// and no further push may follow. Unless armed, a stop string that is completed
// by this piece does not count.
func (s *scanner) push(piece string, armed bool) (text string, stopped bool) {
	if len(s.stops) == 0 {
		return piece, false
	}
	for i := 0; i < len(piece); i++ {
		s.held = append(s.held, piece[i])
		for j := range s.stops {
			if s.stops[j].next(piece[i]) && armed && s.hit < 0 {
				s.hit = j
			}
		}
		if s.hit >= 0 {
			end := len(s.held)
			if !s.include {
				end -= len(s.stops[s.hit].stop)
			}
			return string(s.held[:end]), true
		}
	}
	return s.release(s.keep()), false
}

// keep is how many bytes at the end may still become a stop string.
func (s *scanner) keep() int {
	keep := int32(0)
	if s.include {
		return 0
	}
	for _, m := range s.stops {
		at := m.at
		if int(at) == len(m.stop) { // complete but not armed: only its border counts
			at = m.border[at-1]
		}
		keep = max(keep, at)
	}
	return int(keep)
}

// release gives out all but the last keep bytes.
func (s *scanner) release(keep int) string {
	out := string(s.held[:len(s.held)-keep])
	s.held = append(s.held[:0], s.held[len(s.held)-keep:]...)
	return out
}

// flush gives out what is held back: the text has ended.
func (s *scanner) flush() string { return s.release(0) }

// reason is the stop string that ended the text.
func (s *scanner) reason() string { return s.stops[s.hit].stop }
