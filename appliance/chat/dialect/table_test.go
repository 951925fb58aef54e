package dialect

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"
)

// TestTables checks the parsed messages of the texts in testdata/*.txt. A line that begins
// with "#" is a comment, and one with "@" sets options as JSON for the lines after it. Every
// other line is a text, "=>" and the message, both JSON; "=>|" marks a text that max_tokens
// cut off.
func TestTables(t *testing.T) {
	files, err := os.ReadDir("testdata")
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		if name, is := strings.CutSuffix(f.Name(), ".txt"); is {
			t.Run(name, func(t *testing.T) { table(t, "testdata/"+f.Name()) })
		}
	}
}

// settings are the options of a table row.
type settings struct {
	Reasoning, Tools, Choice, Function, Prompt string
	OneCall, HideReasoning                     bool
	Functions                                  []json.RawMessage
	Kwargs                                     map[string]json.RawMessage
	Tokens                                     bool // markers are tokens
}

// row is the expected message of a text; a call is its name and its arguments.
type row struct {
	Reasoning, Content string
	Calls              [][2]string
	Finish             string
}

func table(t *testing.T, path string) {
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var set settings
	for n, line := range strings.Split(string(b), "\n") {
		at := fmt.Sprintf("%s:%d", path, n+1)
		rest, isSet := strings.CutPrefix(line, "@")
		switch {
		case line == "" || line[0] == '#':
		case isSet:
			set = settings{}
			if err := json.Unmarshal([]byte(rest), &set); err != nil {
				t.Fatalf("%s: %v", at, err)
			}
		default:
			tableRow(t, at, set, line)
		}
	}
}

func tableRow(t *testing.T, at string, set settings, line string) {
	left, right, ok := strings.Cut(line, " => ")
	reason := "stop"
	if !ok {
		left, right, ok = strings.Cut(line, " =>| ")
		reason = "length"
	}
	var text string
	var want row
	if !ok || json.Unmarshal([]byte(left), &text) != nil || json.Unmarshal([]byte(right), &want) != nil {
		t.Fatalf("%s: not a row: %s", at, line)
	}
	if want.Finish == "" {
		want.Finish = reason
		if reason == "stop" && len(want.Calls) > 0 {
			want.Finish = "tool_calls"
		}
	}
	r := rand.New(rand.NewPCG(1, uint64(len(line))))
	o := Options{
		Reasoning: set.Reasoning, Tools: set.Tools, Choice: set.Choice, Function: set.Function, Prompt: set.Prompt,
		OneCall: set.OneCall, HideReasoning: set.HideReasoning, Functions: set.Functions, Kwargs: set.Kwargs,
	}
	var m Message
	var finish string
	if set.Tokens {
		m, finish = stream(t, o, tokenized(text, r), true, reason)
	} else {
		m, finish = same(t, o, text, reason, r)
	}
	got := row{Reasoning: m.Reasoning, Content: m.Content, Finish: finish}
	for _, c := range m.Calls {
		got.Calls = append(got.Calls, [2]string{c.Name, c.Arguments})
	}
	if got.Reasoning != want.Reasoning || got.Content != want.Content || got.Finish != want.Finish || !slices.Equal(got.Calls, want.Calls) {
		t.Errorf("%s: %q\n got %+v\nwant %+v", at, text, got, want)
	}
}

func TestUnknownNames(t *testing.T) {
	for _, o := range []Options{{Reasoning: "x"}, {Tools: "y"}} {
		_, err := New(o)
		if _, is := err.(*UnknownError); !is || !strings.Contains(err.Error(), "hermes") && !strings.Contains(err.Error(), "qwen3") {
			t.Errorf("%+v: %v", o, err)
		}
	}
}

// TestMarkersAreNoPrefixes checks that no marker is a prefix of another, because the scanner
// takes the first one that matches.
func TestMarkersAreNoPrefixes(t *testing.T) {
	for _, pair := range pairs() {
		p, err := New(Options{Reasoning: pair[0], Tools: pair[1]})
		if err != nil {
			t.Fatal(err)
		}
		list := p.scan.m.markers()
		for _, a := range list {
			for _, b := range list {
				if a != b && strings.HasPrefix(b, a) {
					t.Errorf("%v: %s begins %s", pair, a, b)
				}
			}
		}
	}
}

// TestIDs checks that call IDs have the expected format and are different.
func TestIDs(t *testing.T) {
	m, _, err := Parse(Options{Tools: "hermes"}, strings.Repeat(`<tool_call>{"name": "f", "arguments": {}}</tool_call>`, 3), "stop")
	if err != nil || len(m.Calls) != 3 {
		t.Fatal(m, err)
	}
	for i, c := range m.Calls {
		if !strings.HasPrefix(c.ID, "chatcmpl-tool-") || len(c.ID) != 46 || i > 0 && c.ID == m.Calls[i-1].ID {
			t.Errorf("id %q", c.ID)
		}
	}
}

// TestWrittenIDs checks that a call has the ID that the model wrote, and another one where it
// wrote the same twice.
func TestWrittenIDs(t *testing.T) {
	call := "<|tool_call_begin|>functions.f:0<|tool_call_argument_begin|>{}<|tool_call_end|>"
	m, _, err := Parse(Options{Tools: "kimi_k2"}, call+call, "stop")
	if err != nil || len(m.Calls) != 2 || m.Calls[0].ID != "functions.f:0" || m.Calls[1].ID == "functions.f:0" {
		t.Fatal(m, err)
	}
}
