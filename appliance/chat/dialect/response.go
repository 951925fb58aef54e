package dialect

import "strings"

// responseFrame is the machine of ERNIE 4.5's content, which is between <response> and </response>:
// these markers and the line ends beside them are dropped.
type responseFrame struct {
	body  machine
	out   *sink
	list  []string // markers; a buffer
	after bool     // of a marker, with no other text yet
	lines int      // line ends that are held back
}

const (
	responseOpen  = "<response>"
	responseClose = "</response>"
)

func newResponseFrame(p *Parser, body machine) machine {
	return &responseFrame{body: body, out: &p.out}
}

func (r *responseFrame) markers() []string {
	r.list = append(append(r.list[:0], r.body.markers()...), responseOpen, responseClose)
	return r.list
}

func (r *responseFrame) text(s string) {
	if r.after {
		s = strings.TrimLeft(s, "\n")
	}
	if s == "" {
		return
	}
	r.after = false
	rest := strings.TrimRight(s, "\n")
	if rest != "" {
		r.release()
		r.body.text(rest)
	}
	r.lines += len(s) - len(rest)
}

// release passes the held line ends on.
func (r *responseFrame) release() {
	if r.lines > 0 {
		r.body.text(strings.Repeat("\n", r.lines))
		r.lines = 0
	}
}

func (r *responseFrame) mark(m string) {
	switch frame := m == responseOpen || m == responseClose; {
	case frame && r.out.inCall:
		r.text(m) // part of an argument
	case frame:
		r.after, r.lines = true, 0
	default:
		r.after = false
		r.release()
		r.body.mark(m)
	}
}

func (r *responseFrame) end(cut bool) {
	r.release()
	r.body.end(cut)
}

// renderResponse writes content as ERNIE 4.5's template does.
func renderResponse(content string) string {
	if content == "" {
		return ""
	}
	return "\n" + responseOpen + "\n" + content + "\n" + responseClose + "\n"
}
