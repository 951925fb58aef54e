package chat

// maxStops bounds the stop strings of a request; every byte of the reply is compared with
// each of them.
const maxStops = 1024

// maxStopBytes bounds the bytes of all stop strings; each choice has a table of four bytes
// per byte.
const maxStopBytes = 1 << 14

// maxBadWordBytes bounds the bytes of all bad_words; each word is encoded twice before the
// request is queued.
const maxBadWordBytes = 1 << 16

// scanner looks for stop strings in a text that arrives in pieces. The result does not
// depend on how the text is split: the text ends at the first byte that completes a stop
// string, and if several end there, the first in the list is the reason. Until then the
// scanner holds back the longest suffix that may still become a stop string.
type scanner struct {
	stops   []matcher
	include bool   // the text includes the stop string, and nothing is held back
	held    []byte // read and not returned yet
	hit     int    // index of the stop string that ended the text; -1: none yet
}

// matcher matches one stop string with the algorithm of Knuth, Morris and Pratt: amortized
// one comparison per byte.
type matcher struct {
	stop   string
	border []int32 // border[i]: longest proper prefix of stop[:i+1] that is its suffix
	at     int32   // length of the prefix of stop that the text ends with
}

func newScanner(stops []string, include bool) *scanner {
	s := &scanner{include: include, hit: -1}
	for _, stop := range stops {
		s.stops = append(s.stops, matcher{stop: stop, border: borders(stop)})
	}
	return s
}

// borders returns the border table of s.
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

// push scans the next piece and returns the text that cannot become part of a stop string
// any more. stopped reports that a stop string ended the text: the rest of the piece is
// dropped, and push must not be called again. Unless armed, a stop string that this piece
// completes has no effect.
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

// keep returns the number of bytes at the end that may still become a stop string.
func (s *scanner) keep() int {
	keep := int32(0)
	if s.include {
		return 0
	}
	for _, m := range s.stops {
		at := m.at
		if int(at) == len(m.stop) { // complete but not armed: a match may continue at its border
			at = m.border[at-1]
		}
		keep = max(keep, at)
	}
	return int(keep)
}

// release returns all but the last keep bytes.
func (s *scanner) release(keep int) string {
	out := string(s.held[:len(s.held)-keep])
	s.held = append(s.held[:0], s.held[len(s.held)-keep:]...)
	return out
}

// flush returns the held text at the end of the reply.
func (s *scanner) flush() string { return s.release(0) }

// reason returns the stop string that ended the text.
func (s *scanner) reason() string { return s.stops[s.hit].stop }
