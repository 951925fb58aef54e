package console

import (
	"strings"
	"testing"
)

// TestScreen checks that reasoning is dimmed on a terminal and absent elsewhere, that the text
// ends its line, and that model text cannot move the cursor.
func TestScreen(t *testing.T) {
	deltas := []Piece{{Reasoning: "hm"}, {Reasoning: "m\x1b[2J"}, {Text: "yes\x07"}, {Text: "!"}}
	for _, c := range []struct {
		terminal, plain bool
		deltas          []Piece
		want            string
	}{
		{true, false, deltas, "\x1b[2mhmm\uFFFD[2J\x1b[0m\nyes\uFFFD!\n"},
		{true, true, deltas, "hmm\uFFFD[2J\nyes\uFFFD!\n"},
		{false, false, deltas, "yes\x07!\n"},
		{true, false, deltas[:1], "\x1b[2mhm\x1b[0m\n"},
		{false, false, []Piece{{Text: "a\n"}}, "a\n"},
		{true, false, nil, ""},
	} {
		var b strings.Builder
		s := Screen{W: &b, Terminal: c.terminal, Color: !c.plain, Reasoning: true}
		for _, d := range c.deltas {
			if err := s.Say(d); err != nil {
				t.Fatal(err)
			}
		}
		if err := s.End(); err != nil || b.String() != c.want {
			t.Errorf("%+v: %q, %v; want %q", c, b.String(), err, c.want)
		}
	}
}
