package openai

import (
	"bufio"
	"bytes"
	"encoding/json"
	"math/rand/v2"
	"reflect"
	"regexp"
	"strings"
	"testing"

	"vapp.dev/appliance/chat"
	"vapp.dev/appliance/chat/chattest"
	"vapp.dev/engine"
)

// clientView is a response as a client reads it.
type clientView struct {
	Status string           `json:"status"`
	Output []map[string]any `json:"output"`
	Usage  map[string]any   `json:"usage"`
	Cut    map[string]any   `json:"incomplete_details"`
}

// serviceSaying returns a service whose replies are text, parsed for reasoning and calls.
func serviceSaying(text string) (*chat.Service, *chat.Settings) {
	m := &chattest.Model{Say: func(engine.Request, int) chattest.Script { return chattest.Script{Text: text} }}
	cfg := chattest.Config(m)
	cfg.ModelLen = 1000
	set := chattest.Settings()
	set.Reasoning, set.Tools, set.AutoToolChoice = "qwen3", "hermes", true
	set.NewCallID = func() string { return "call" }
	return chat.New(cfg), &set
}

// begin starts the run of a decoded request; nil if it is refused.
func begin(t *testing.T, r *ResponsesRequest, s *chat.Service, set *chat.Settings) *chat.Run {
	t.Helper()
	if err := r.Resolve(nil, nil); err != nil {
		checkError(t, err)
		return nil
	}
	r.Ask.ID = "resp_1"
	req, err := chat.NewRequest(r.Ask, set)
	if err != nil {
		checkError(t, err)
		return nil
	}
	run, err := s.Start(t.Context(), req)
	if err != nil {
		checkError(t, err)
		return nil
	}
	return run
}

// drive reads a run into a reply and returns the events.
func drive(t *testing.T, run *chat.Run, reply *ResponsesReply) []byte {
	t.Helper()
	buf := reply.Begin(nil)
	for {
		ds, err := run.Next(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if ds == nil {
			return reply.End(buf)
		}
		for _, d := range ds {
			buf = reply.Add(buf, d)
		}
	}
}

func decodeNothing(ids []int32) string { return strings.Repeat("x", len(ids)) }

// replay builds a response from the events of a stream, as clients do, and checks the
// order of the events.
func replay(t *testing.T, stream []byte) clientView {
	t.Helper()
	var out clientView
	var kinds []string
	n := 0
	in := bufio.NewScanner(bytes.NewReader(stream))
	in.Buffer(nil, 1<<20)
	for in.Scan() {
		line, is := strings.CutPrefix(in.Text(), "data: ")
		if !is {
			continue
		}
		var e struct {
			Type     string
			Sequence int            `json:"sequence_number"`
			Index    int            `json:"output_index"`
			Item     map[string]any `json:"item"`
			Delta    string
			Response *clientView
		}
		if err := json.Unmarshal([]byte(line), &e); err != nil || e.Sequence != n {
			t.Fatalf("%v, event %d: %s", err, n, line)
		}
		n++
		kinds = append(kinds, strings.TrimPrefix(e.Type, "response."))
		switch e.Type {
		case "response.output_item.added":
			out.Output = append(out.Output, e.Item)
			e.Item["said"] = ""
		case "response.output_text.delta", "response.reasoning_text.delta", "response.function_call_arguments.delta":
			item := out.Output[e.Index]
			item["said"] = item["said"].(string) + e.Delta
		case "response.output_item.done":
			said := out.Output[e.Index]["said"].(string)
			if got := textOfItem(e.Item); got != said {
				t.Fatalf("deltas %q, item %q", said, got)
			}
			out.Output[e.Index] = e.Item
		case "response.completed", "response.incomplete":
			if !reflect.DeepEqual(append([]map[string]any{}, out.Output...), e.Response.Output) {
				t.Fatalf("events %v\nresponse %v", out.Output, e.Response.Output)
			}
			out = *e.Response
		}
	}
	checkOrder(t, kinds)
	return out
}

// textOfItem returns the text of an item.
func textOfItem(item map[string]any) string {
	if item["type"] == "function_call" {
		return item["arguments"].(string)
	}
	text := ""
	for _, p := range item["content"].([]any) {
		text += p.(map[string]any)["text"].(string)
	}
	return text
}

// ordered matches a valid order of events, one letter for each.
var ordered = regexp.MustCompile(`^CP(\((rd*DR|te*ET|a*A)\))*\.$`)

// checkOrder checks the order of events.
func checkOrder(t *testing.T, kinds []string) {
	t.Helper()
	short := map[string]string{
		"created": "C", "in_progress": "P", "output_item.added": "(", "output_item.done": ")", "completed": ".", "incomplete": ".",
		"reasoning_part.added": "r", "reasoning_part.done": "R", "reasoning_text.delta": "d", "reasoning_text.done": "D",
		"content_part.added": "t", "content_part.done": "T", "output_text.delta": "e", "output_text.done": "E",
		"function_call_arguments.delta": "a", "function_call_arguments.done": "A",
	}
	var b strings.Builder
	for _, k := range kinds {
		if short[k] == "" {
			t.Fatalf("unknown event %q", k)
		}
		b.WriteString(short[k])
	}
	if s := b.String(); !ordered.MatchString(s) {
		t.Fatalf("got events %v (%s), want them to match %s", kinds, s, ordered)
	}
}

// TestResponsesStreamIsTheReply checks that the events give the same response as a
// reply that is not streamed, for random texts that end anywhere.
func TestResponsesStreamIsTheReply(t *testing.T) {
	r := rand.New(rand.NewPCG(9, 10))
	pieces := []string{"a", " ", "é", "</think>", "<tool_call>", "</tool_call>", `<tool_call>{"name": "f", "arguments": {"x": 1}}</tool_call>`, `{"name": "f", "arguments": {"x": 1}}`, `{"name": "f"`, "<tool"}
	seen := map[string]int{}
	for range 300 {
		text := ""
		for range r.IntN(9) {
			text += pieces[r.IntN(len(pieces))]
		}
		body := `{"input":"hi","tools":[{"type":"function","name":"f"}],"include":["message.output_text.logprobs","reasoning.encrypted_content"],"max_output_tokens":` + itoa(1+r.IntN(90)) + `}`
		var got [2]clientView
		for i := range got {
			req, err := DecodeResponses([]byte(body))
			if err != nil {
				t.Fatal(err)
			}
			s, set := serviceSaying(text)
			run := begin(t, req, s, set)
			if i == 0 {
				got[i] = replay(t, drive(t, run, req.Events(run, decodeNothing)))
				continue
			}
			reply := req.Whole(run, decodeNothing)
			if b := drive(t, run, reply); len(b) > 0 {
				t.Fatalf("a plain reply wrote %q", b)
			}
			if err := json.Unmarshal(reply.Final(), &got[i]); err != nil {
				t.Fatal(err)
			}
		}
		if !reflect.DeepEqual(got[0], got[1]) {
			t.Fatalf("%q: stream %+v\nreply %+v", text, got[0], got[1])
		}
		seen[got[0].Status]++
		for _, item := range got[0].Output {
			seen[item["type"].(string)]++
		}
	}
	for _, kind := range []string{"completed", "incomplete", "reasoning", "message", "function_call"} {
		if seen[kind] < 20 {
			t.Errorf("%d replies with %s, want at least 20", seen[kind], kind)
		}
	}
}

// FuzzResponses checks that any body is either refused with a message or answered, and
// that the stored items are valid input.
func FuzzResponses(f *testing.F) {
	for _, body := range []string{
		`{"input":"hi"}`,
		`{"input":"hi","instructions":"be good","stream":true,"tools":[{"type":"function","name":"f","parameters":{}}],"tool_choice":{"type":"allowed_tools","mode":"auto","tools":[{"type":"function","name":"f"}]}}`,
		`{"input":[{"role":"user","content":[{"type":"input_text","text":"hi"}]},{"type":"reasoning","id":"rs_1","summary":[],"encrypted_content":"vapp1.aG0"},{"type":"message","role":"assistant","content":[{"type":"output_text","text":"ok"}]},{"type":"function_call","call_id":"1","name":"f","arguments":"{}"},{"type":"function_call_output","call_id":"1","output":[{"type":"input_text","text":"7"}]}]}`,
		`{"input":[{"type":"item_reference","id":"x"}],"previous_response_id":"y","background":true,"store":false}`,
		`{"input":"hi","text":{"format":{"type":"text"},"verbosity":"low"},"reasoning":{"effort":"low","summary":"auto"},"include":["message.output_text.logprobs"],"top_logprobs":2,"truncation":"auto","metadata":{"a":"b"},"enable_response_messages":true}`,
	} {
		f.Add([]byte(body), "hm</think>Ok.<tool_call>{\"name\": \"f\", \"arguments\": {\"x\": 1}}</tool_call>")
	}
	f.Fuzz(func(t *testing.T, body []byte, text string) {
		r, err := DecodeResponses(body)
		if err != nil {
			checkError(t, err)
			return
		}
		s, set := serviceSaying(text[:min(len(text), 2000)])
		run := begin(t, r, s, set)
		if run == nil {
			return
		}
		reply := r.Events(run, decodeNothing)
		if drive(t, run, reply); !json.Valid(reply.Final()) {
			t.Fatalf("reply %q", reply.Final())
		}
		var before []json.RawMessage
		for _, item := range append(r.Items("resp_1"), reply.Output()...) {
			if !json.Valid(item.JSON) || item.ID == "" {
				t.Fatalf("item %q: %q", item.ID, item.JSON)
			}
			before = append(before, item.JSON)
		}
		next, err := DecodeResponses([]byte(`{"input":"more"}`))
		if err != nil {
			t.Fatal(err)
		}
		if err := next.Resolve(before, nil); err != nil {
			t.Fatalf("the items of a response are no valid input: %v", err)
		}
	})
}
