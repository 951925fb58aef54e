package api

import (
	"encoding/json"
	"errors"
	"net/http/httptest"
	"strings"
	"testing"

	"vapp.dev/appliance/chat/chattest"
	"vapp.dev/engine"
)

// streamRule is one row of the section on streams: a property of the records of a stream.
// The model says "a stop é", one byte for each token.
type streamRule struct {
	section, route string
	field, rule    string
	json           string
	holds          func([]map[string]any) bool
}

// first returns the first choice of a record.
func first(r map[string]any) map[string]any {
	list, _ := r["choices"].([]any)
	if len(list) == 0 {
		return nil
	}
	c, _ := list[0].(map[string]any)
	return c
}

func delta(r map[string]any) map[string]any {
	d, _ := first(r)["delta"].(map[string]any)
	return d
}

func has(m map[string]any, key string) bool { _, is := m[key]; return is }

// every returns a check that holds for all records but the last ones.
func every(skip int, f func(map[string]any) bool) func([]map[string]any) bool {
	return func(list []map[string]any) bool {
		for _, r := range list[:len(list)-skip] {
			if !f(r) {
				return false
			}
		}
		return len(list) > skip
	}
}

// content returns the joined text of a choice.
func content(list []map[string]any, index float64) (text string, pieces []string) {
	for _, r := range list {
		c := first(r)
		if c == nil || c["index"] != index {
			continue
		}
		s, _ := delta(r)["content"].(string)
		if t, is := c["text"].(string); is {
			s = t
		}
		text, pieces = text+s, append(pieces, s)
	}
	return text, pieces
}

var streamRules = []streamRule{
	{"3.4", "c", "role", "comes first, with empty content", ``, func(l []map[string]any) bool {
		d := delta(l[0])
		return d["role"] == "assistant" && d["content"] == "" && !has(delta(l[1]), "role")
	}},
	{"3.4", "c", "role", "comes once a choice", `,"n":2`, func(l []map[string]any) bool {
		return delta(l[0])["role"] == "assistant" && delta(l[1])["role"] == "assistant" && first(l[1])["index"] == 1.0
	}},
	{"3.4", "c", "id, object, created, model", "are the same in every record", ``, func(l []map[string]any) bool {
		return every(0, func(r map[string]any) bool {
			return r["id"] == l[0]["id"] && r["object"] == "chat.completion.chunk" && r["created"] == l[0]["created"] && r["model"] == "test"
		})(l)
	}},
	{"3.4", "c", "delta", "has no keys that were not set", ``, every(1, func(r map[string]any) bool {
		return !has(delta(r), "tool_calls") && !has(delta(r), "reasoning") && !has(r, "usage") && !has(first(r), "token_ids")
	})},
	{"3.4", "c", "finish_reason, logprobs", "are null until they are set", ``, every(1, func(r map[string]any) bool {
		c := first(r)
		return has(c, "finish_reason") && c["finish_reason"] == nil && has(c, "logprobs") && c["logprobs"] == nil
	})},
	{"3.4", "c", "finish_reason, stop_reason", "are in the last record of a choice", ``, func(l []map[string]any) bool {
		c := first(l[len(l)-1])
		return c["finish_reason"] == "stop" && has(c, "stop_reason") && c["stop_reason"] == nil
	}},
	{"3.4", "c", "return_token_ids", "the prompt's are in the first record alone", `,"return_token_ids":true`, func(l []map[string]any) bool {
		return has(l[0], "prompt_token_ids") && every(0, func(r map[string]any) bool { return !has(r, "prompt_token_ids") })(l[1:])
	}},
	{"3.4", "c", "return_token_ids", "returns every token", `,"return_token_ids":true`, func(l []map[string]any) bool {
		n := 0
		for _, r := range l {
			ids, _ := first(r)["token_ids"].([]any)
			n += len(ids)
		}
		return n == len("a stop é")+1
	}},
	{"3.4", "c", "echo", "is a second record", `,"echo":true,"add_generation_prompt":false,"continue_final_message":true`, func(l []map[string]any) bool {
		return delta(l[1])["content"] == "hi"
	}},
	{"3.4", "c", "include_usage", "is a record without choices at the end", `,"stream_options":{"include_usage":true}`, func(l []map[string]any) bool {
		last := l[len(l)-1]
		list, is := last["choices"].([]any)
		return is && len(list) == 0 && last["usage"].(map[string]any)["completion_tokens"] == float64(len("a stop é")+1) &&
			every(1, func(r map[string]any) bool { return r["usage"] == nil })(l)
	}},
	{"3.4", "c", "continuous_usage_stats", "is in every record, first with 0", `,"stream_options":{"include_usage":true,"continuous_usage_stats":true}`, func(l []map[string]any) bool {
		last := -1.0
		return l[0]["usage"].(map[string]any)["completion_tokens"] == 0.0 && every(0, func(r map[string]any) bool {
			u, is := r["usage"].(map[string]any)
			n, _ := u["completion_tokens"].(float64)
			ok := is && n >= last
			last = n
			return ok
		})(l)
	}},
	{"3.4", "ct", "continuous_usage_stats", "alone does nothing", `,"stream_options":{"continuous_usage_stats":true}`, every(0, func(r map[string]any) bool { return r["usage"] == nil })},
	{"3.4", "ct", "content", "half a character is held back", ``, func(l []map[string]any) bool {
		text, pieces := content(l, 0)
		for _, p := range pieces {
			if strings.Contains(p, "\ufffd") {
				return false
			}
		}
		return text == "a stop é"
	}},
	{"3.4", "ct", "stop", "what may become a stop string is held back", `,"stop":"stopped"`, func(l []map[string]any) bool {
		text, pieces := content(l, 0)
		for _, p := range pieces {
			if strings.Contains(p, "s") && !strings.Contains(p, "stop ") {
				return false
			}
		}
		return text == "a stop é"
	}},
	{"3.4", "ct", "stop", "nothing of a stop string is sent", `,"stop":"stop"`, func(l []map[string]any) bool {
		text, _ := content(l, 0)
		return text == "a " && first(l[len(l)-1])["stop_reason"] == "stop"
	}},
	{"3.4", "ct", "n", "choices have their index", `,"n":2`, func(l []map[string]any) bool {
		one, _ := content(l, 0)
		two, _ := content(l, 1)
		return one == "a stop é" && two == one
	}},
	{"4", "t", "chunks", "have all keys", ``, every(0, func(r map[string]any) bool {
		c := first(r)
		return has(r, "usage") && has(c, "index") && has(c, "text") && has(c, "logprobs") && has(c, "finish_reason") && has(c, "stop_reason")
	})},
	{"4", "t", "role", "is not there", ``, func(l []map[string]any) bool { return first(l[0])["text"] == "a" }},
	{"4", "t", "echo", "comes first", `,"echo":true`, func(l []map[string]any) bool {
		text, _ := content(l, 0)
		return text == "hia stop é"
	}},
	{"4", "t", "logprobs", "go with the text", `,"logprobs":0`, every(1, func(r map[string]any) bool {
		lp, is := first(r)["logprobs"].(map[string]any)
		return is && len(lp["tokens"].([]any)) > 0
	})},
	{"13", "g", "token_ids", "come as they are generated", ``, func(l []map[string]any) bool {
		return len(l) == len("a stop é")+1 && first(l[len(l)-1])["finish_reason"] == "stop" && first(l[0])["finish_reason"] == nil
	}},
}

// TestStreams checks the rows above. Its subtests have names as in TestFields.
func TestStreams(t *testing.T) {
	m := &chattest.Model{Say: func(engine.Request, int) chattest.Script { return chattest.Script{Text: "a stop é"} }}
	s := testServer(m, testSettings())
	for _, r := range streamRules {
		for _, route := range r.route {
			path := map[rune]string{'c': "/v1/chat/completions", 't': "/v1/completions", 'g': "/inference/v1/generate"}[route]
			body := map[rune]string{
				'c': `{"messages":[{"role":"user","content":"hi"}]`, 't': `{"prompt":"hi"`, 'g': `{"token_ids":[1],"sampling_params":{}`,
			}[route]
			t.Run(strings.Join([]string{r.section, path, r.field, r.rule}, "|"), func(t *testing.T) {
				w := post(s, path, body+`,"stream":true`+r.json+"}")
				list := records(t, w)
				if !r.holds(list) {
					t.Errorf("%s", w.Body)
				}
			})
		}
	}
}

// records returns the records of a stream, and checks its header and last record.
func records(t *testing.T, w *httptest.ResponseRecorder) (out []map[string]any) {
	t.Helper()
	if got := w.Header().Get("Content-Type"); w.Code != 200 || got != "text/event-stream; charset=utf-8" {
		t.Fatalf("%d %s: %s", w.Code, got, w.Body)
	}
	whole, ended := strings.CutSuffix(w.Body.String(), "data: [DONE]\n\n")
	if !ended {
		t.Fatalf("no last record: %s", w.Body)
	}
	for line := range strings.SplitSeq(strings.TrimSuffix(whole, "\n\n"), "\n\n") {
		data, is := strings.CutPrefix(line, "data: ")
		var r map[string]any
		if err := json.Unmarshal([]byte(data), &r); err != nil || !is {
			t.Fatalf("%q: %v", line, err)
		}
		out = append(out, r)
	}
	return out
}

// TestStreamBreaks checks that an error after the first record is a record, and one
// before it a reply with its own status.
func TestStreamBreaks(t *testing.T) {
	for said, want := range map[string]int{"ab": 200, "": 500} {
		m := &chattest.Model{Say: func(engine.Request, int) chattest.Script {
			return chattest.Script{Text: said, Finish: engine.FinishError, Err: errors.New("boom")}
		}}
		w := post(testServer(m, testSettings()), "/v1/chat/completions", `{"messages":[{"role":"user","content":"hi"}],"stream":true}`)
		if w.Code != want {
			t.Errorf("%q: %d %s", said, w.Code, w.Body)
			continue
		}
		if want != 200 {
			if got := at(t, w.Body.Bytes(), "error.type"); got != `"InternalServerError"` {
				t.Errorf("%q: %s", said, w.Body)
			}
			continue
		}
		list := records(t, w)
		if e, is := list[len(list)-1]["error"].(map[string]any); !is || len(e) != 4 || e["code"] != 500.0 {
			t.Errorf("%q: %s", said, w.Body)
		}
	}
}
