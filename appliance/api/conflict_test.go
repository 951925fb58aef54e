package api

import (
	"fmt"
	"net/http/httptest"
	"strings"
	"testing"

	"vapp.dev/appliance/chat/chattest"
	"vapp.dev/engine"
)

// A request that forbids every token is a client error: 400 before the first token, and
// an error record in a stream that has started.
func TestConflicts(t *testing.T) {
	const regex, tools = `"structured_outputs":{"regex":"a"}`, `"tools":[{"type":"function","function":{"name":"f"}}],"tool_choice":"required"`
	for _, c := range []struct {
		more   string
		err    *engine.ConflictError
		param  string
		text   string
		tokens string // before the error
	}{
		{regex, &engine.ConflictError{Grammar: true, Params: []string{"allowed_token_ids"}}, "allowed_token_ids",
			"`structured_outputs.regex`, `allowed_token_ids` together leave no token to begin the reply with: change one of them.", ""},
		{regex, &engine.ConflictError{Grammar: true, Params: []string{"bad_words"}, Output: 2}, "bad_words",
			"`structured_outputs.regex`, `bad_words` together leave no token after the first 2 tokens of the reply: change one of them.", "ab"},
		{tools, &engine.ConflictError{Grammar: true, Params: []string{"min_tokens"}, Output: 2}, "min_tokens",
			"`tool_choice`, `min_tokens` together leave no token after the first 2 tokens of the reply: change one of them.", "ab"},
		{`"n":1`, &engine.ConflictError{Thinking: true, Params: []string{"allowed_token_ids"}, Output: 2}, "allowed_token_ids",
			"`thinking_token_budget`, `allowed_token_ids` together leave no token after the first 2 tokens of the reply: change one of them.", "ab"},
		{`"n":1`, &engine.ConflictError{Params: []string{"bad_words"}}, "bad_words", "`bad_words` leaves no token to begin the reply with: change it.", ""},
	} {
		for _, stream := range []bool{false, true} {
			m := &chattest.Model{Say: func(engine.Request, int) chattest.Script {
				return chattest.Script{Text: c.tokens, Finish: engine.FinishError, Err: c.err}
			}}
			if c.err.Output == 0 {
				m.Refuse = c.err
			}
			set := testSettings()
			set.Chat.Tools, set.Chat.AutoToolChoice = "hermes", true
			r := httptest.NewRequest("POST", "/v1/chat/completions", strings.NewReader(fmt.Sprintf(`{"messages":[{"role":"user","content":"hi"}],"stream":%v,%s}`, stream, c.more)))
			r.Header.Set("Content-Type", "application/json")
			w := httptest.NewRecorder()
			testServer(m, set).Handler().ServeHTTP(w, r)
			status := 400
			if stream && c.tokens != "" {
				status = 200
			}
			want := fmt.Sprintf(`"message":"%s","type":"BadRequestError","param":"%s","code":400`, c.text, c.param)
			if w.Code != status || !strings.Contains(w.Body.String(), want) {
				t.Errorf("%s, stream %v: %d %s\nwant %d with %s", c.more, stream, w.Code, w.Body, status, want)
			}
		}
	}
}
