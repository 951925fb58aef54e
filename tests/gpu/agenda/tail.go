package agenda

import (
	"strings"
	"sync"
)

// tail keeps the end of the text written to it, at most most bytes; where it had to cut, whole
// lines.
type tail struct {
	mu   sync.Mutex // two pipes may write concurrently
	most int
	b    []byte
	cut  bool
}

func (t *tail) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.b = append(t.b, p...)
	if over := len(t.b) - t.most; over > t.most { // not at every write, to copy less
		t.b, t.cut = append(t.b[:0], t.b[over:]...), true
	}
	return len(p), nil
}

func (t *tail) bytes() []byte {
	t.mu.Lock()
	defer t.mu.Unlock()
	b := t.b
	if over := len(b) - t.most; over > 0 {
		b, t.cut = b[over:], true
	}
	return b
}

// String returns the kept end as valid UTF-8.
func (t *tail) String() string {
	s := strings.ToValidUTF8(string(t.bytes()), "\uFFFD")
	if !t.cut {
		return s
	}
	if _, rest, ok := strings.Cut(s, "\n"); ok {
		s = rest
	}
	return "…\n" + s
}

func lastLine(s string) string {
	lines := strings.Split(strings.TrimSpace(s), "\n")
	return lines[len(lines)-1]
}
