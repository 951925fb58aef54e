package main

import (
	"strings"
	"testing"

	"vapp.dev/appliance/chat"
)

// TestSpeaker checks that reasoning is dimmed on a terminal and absent elsewhere, that the text
// ends its line, and that model text cannot move the cursor.
func TestSpeaker(t *testing.T) {
	deltas := []chat.Delta{{Reasoning: "hm"}, {Reasoning: "m\x1b[2J"}, {Text: "yes\x07"}, {Text: "!"}}
	for _, c := range []struct {
		terminal, plain bool
		deltas          []chat.Delta
		want            string
	}{
		{true, false, deltas, "\x1b[2mhmm\uFFFD[2J\x1b[0m\nyes\uFFFD!\n"},
		{true, true, deltas, "hmm\uFFFD[2J\nyes\uFFFD!\n"},
		{false, false, deltas, "yes\x07!\n"},
		{true, false, deltas[:1], "\x1b[2mhm\x1b[0m\n"},
		{false, false, []chat.Delta{{Text: "a\n"}}, "a\n"},
		{true, false, nil, ""},
	} {
		var b strings.Builder
		s := speaker{w: &b, terminal: c.terminal, plain: c.plain}
		for _, d := range c.deltas {
			if err := s.say(d); err != nil {
				t.Fatal(err)
			}
		}
		if err := s.end(); err != nil || b.String() != c.want {
			t.Errorf("%+v: %q, %v; want %q", c, b.String(), err, c.want)
		}
	}
}
