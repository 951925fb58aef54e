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

// Screen writes a reply. On a terminal it writes the reasoning first, dimmed, and makes the text
// Printable; elsewhere it omits the reasoning and writes the text as it is.
type Screen struct {
	W         io.Writer
	Terminal  bool
	Color     bool
	Reasoning bool // show it
	thinks    bool // the last text written is reasoning
	open      bool // the last text written does not end its line
}

// Say writes the next piece of the reply.
func (s *Screen) Say(p Piece) error {
	if p.Reasoning != "" && s.Terminal && s.Reasoning {
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
	if !s.Terminal { // a program may read it
		return s.write("", p.Text)
	}
	return s.write(s.answers(), Printable(p.Text))
}

// answers returns the text that ends the reasoning.
func (s *Screen) answers() string {
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

func (s *Screen) code(text string) string {
	if !s.Color {
		return ""
	}
	return text
}

func (s *Screen) write(lead, text string) error {
	s.open = !strings.HasSuffix(text, "\n")
	_, err := io.WriteString(s.W, lead+text)
	return err
}

// End ends the current line.
func (s *Screen) End() error {
	lead := s.answers()
	if s.open && !strings.HasSuffix(lead, "\n") {
		lead += "\n"
	}
	s.open = false
	_, err := io.WriteString(s.W, lead)
	return err
}
