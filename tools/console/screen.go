package console

import (
	"io"
	"strings"
	"unicode"
)

// Printable makes a text of a server safe for a terminal: control characters except tab and line
// feed, and characters that change the direction of writing, become the replacement character.
func Printable(text string) string {
	return strings.Map(func(r rune) rune {
		if r != '\n' && r != '\t' && unicode.IsControl(r) || unicode.Is(unicode.Bidi_Control, r) {
			return unicode.ReplacementChar
		}
		return r
	}, strings.ToValidUTF8(text, "\uFFFD"))
}

// screen writes a reply. On a terminal it writes the reasoning first, dimmed; elsewhere it omits
// it.
type screen struct {
	w         io.Writer
	terminal  bool
	color     bool
	reasoning bool // show it
	thinks    bool // the last text written is reasoning
	open      bool // the last text written does not end its line
}

func (s *screen) say(p Piece) error {
	if p.Reasoning != "" && s.terminal && s.reasoning {
		lead := ""
		if !s.thinks {
			s.thinks, lead = true, s.code("\x1b[2m")
		}
		if err := s.write(lead, Printable(p.Reasoning)); err != nil {
			return err
		}
	}
	if p.Text == "" {
		return nil
	}
	if !s.terminal { // a program may read it
		return s.write("", p.Text)
	}
	return s.write(s.answers(), Printable(p.Text))
}

// answers returns the text that ends the reasoning.
func (s *screen) answers() string {
	if !s.thinks {
		return ""
	}
	s.thinks = false
	lead := s.code("\x1b[0m")
	if s.open {
		lead += "\n"
	}
	return lead
}

func (s *screen) code(text string) string {
	if !s.color {
		return ""
	}
	return text
}

func (s *screen) write(lead, text string) error {
	s.open = !strings.HasSuffix(text, "\n")
	_, err := io.WriteString(s.w, lead+text)
	return err
}

// end ends the current line.
func (s *screen) end() error {
	lead := s.answers()
	if s.open && !strings.HasSuffix(lead, "\n") {
		lead += "\n"
	}
	s.open = false
	_, err := io.WriteString(s.w, lead)
	return err
}
