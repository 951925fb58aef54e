package anthropic

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"vapp.dev/appliance/chat"
)

// aggregate joins events to content blocks as Anthropic's clients do.
func aggregate(t *testing.T, events []byte) []map[string]any {
	t.Helper()
	var out []map[string]any
	texts := map[string]string{"thinking_delta": "thinking", "text_delta": "text", "signature_delta": "signature"}
	open, partial := false, ""
	lines := bufio.NewScanner(bytes.NewReader(events))
	for lines.Scan() {
		data, is := strings.CutPrefix(lines.Text(), "data: ")
		if !is {
			continue
		}
		var e struct {
			Type  string
			Index int
			Block map[string]any `json:"content_block"`
			Delta map[string]any
		}
		if err := json.Unmarshal([]byte(data), &e); err != nil {
			t.Fatal(err)
		}
		if strings.HasPrefix(e.Type, "content_block") && (open != (e.Type != "content_block_start") || e.Index != len(out)-1 && open || e.Index != len(out) && !open) {
			t.Fatalf("%s of block %d, open %v after %d", e.Type, e.Index, open, len(out))
		}
		switch e.Type {
		case "content_block_start":
			open, partial, out = true, "", append(out, e.Block)
		case "content_block_delta":
			kind := e.Delta["type"].(string)
			if kind == "input_json_delta" {
				partial += e.Delta["partial_json"].(string)
				continue
			}
			field := texts[kind]
			out[e.Index][field] = fmt.Sprint(out[e.Index][field], e.Delta[field])
		case "content_block_stop":
			open = false
			if partial != "" {
				var in any
				if err := json.Unmarshal([]byte(partial), &in); err != nil {
					t.Fatal(err)
				}
				out[e.Index]["input"] = in
			}
		}
	}
	return out
}

// TestStreamIsReply checks that the events give the same blocks as the whole reply.
func TestStreamIsReply(t *testing.T) {
	run := &chat.Run{ID: "chatcmpl-1", Model: "m", Role: "assistant"}
	r := &Request{}
	deltas := []chat.Delta{
		{Reasoning: "h"}, {Reasoning: "m", Text: "O"}, {Text: "k"},
		{Text: ".", Calls: []chat.CallDelta{{Index: 0, ID: "1", Name: "f", Arguments: `{"x"`}}},
		{Calls: []chat.CallDelta{{Index: 0, Arguments: `: 1}`}, {Index: 1, ID: "2", Name: "g"}}},
		{Calls: []chat.CallDelta{{Index: 1, Arguments: `{}`}}},
		{Finish: "tool_calls"},
	}
	s := r.Events(run)
	buf := s.Begin(nil)
	for _, d := range deltas {
		buf = s.Add(buf, d)
	}
	got := aggregate(t, s.End(buf))
	whole := r.Reply(run, []chat.Reply{{Delta: chat.Delta{
		Reasoning: "hm", Text: "Ok.", Finish: "tool_calls",
		Calls: []chat.CallDelta{{Index: 0, ID: "1", Name: "f", Arguments: `{"x": 1}`}, {Index: 1, ID: "2", Name: "g", Arguments: `{}`}},
	}}})
	var want struct{ Content []map[string]any }
	if err := json.Unmarshal(whole, &want); err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(want.Content, got); d != "" {
		t.Error(d)
	}
}
