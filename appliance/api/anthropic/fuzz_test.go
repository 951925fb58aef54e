package anthropic

import (
	"encoding/json"
	"errors"
	"testing"
	"unicode/utf8"

	"vapp.dev/appliance/chat"
	"vapp.dev/appliance/chat/chattest"
)

// checkError checks that an error is a *chat.Error with a message.
func checkError(t *testing.T, err error) {
	t.Helper()
	var e *chat.Error
	if !errors.As(err, &e) || e.Kind == chat.Internal || e.Message == "" || !json.Valid(Error(400, e.Message)) {
		t.Fatalf("a body made the error %v", err)
	}
}

// FuzzMessages checks that any body is either refused with a message or answered with
// valid JSON.
func FuzzMessages(f *testing.F) {
	for _, s := range []string{
		`{"max_tokens":5,"messages":[{"role":"user","content":"hi"}]}`,
		`{"max_tokens":9,"system":[{"type":"text","text":"s"}],"messages":[{"role":"user","content":[{"type":"tool_result","tool_use_id":"1","content":"x"},{"type":"text","text":"t"}]}]}`,
		`{"max_tokens":9,"messages":[{"role":"assistant","content":[{"type":"thinking","thinking":"h"},{"type":"tool_use","id":"1","name":"f","input":{}}]}],"tools":[{"name":"f","input_schema":{}}],"tool_choice":{"type":"none"}}`,
		`{"max_tokens":-1}`, `[`, `{"max_tokens":1,"messages":null,"stop_sequences":[null]}`,
	} {
		f.Add([]byte(s))
	}
	set := chattest.Settings()
	set.Reasoning, set.Tools, set.AutoToolChoice = "qwen3", "hermes", true
	set.Vision = &chattest.Vision{Most: map[string]int{"image": 3}}
	s := chattest.Service(&chattest.Model{})
	f.Add([]byte(`{"model":"test","max_tokens":9,"messages":[{"role":"user","content":[{"type":"image","source":{"type":"base64","media_type":"image/png","data":"abc"}},{"type":"tool_result","tool_use_id":"1","content":[{"type":"image","source":{"type":"url","url":"http://x/a"}}]}]}]}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		if a, err := DecodeCount(b); err != nil {
			checkError(t, err)
		} else if _, err := s.Tokenize(t.Context(), a, &set); err != nil {
			checkError(t, err)
		}
		r, err := Decode(b)
		if err != nil {
			checkError(t, err)
			return
		}
		q, err := chat.NewRequest(r.Ask, &set)
		if err != nil {
			checkError(t, err)
			return
		}
		run, err := s.Start(t.Context(), q)
		if err != nil {
			checkError(t, err)
			return
		}
		replies, err := run.Wait(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if b := r.Reply(run, replies); !json.Valid(b) || !utf8.Valid(b) {
			t.Fatalf("reply %q", b)
		}
	})
}
