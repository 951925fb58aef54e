package api

import (
	"bytes"
	"encoding/json"
	"log/slog"
	"math"
	"net/http/httptest"
	"reflect"
	"slices"
	"strings"
	"testing"

	"vapp.dev/appliance/chat/chattest"
	"vapp.dev/engine"
	"vapp.dev/engine/sample"
)

// fieldRule is one row of the sections on requests: the effect of a field of a chat (c)
// or a completion (t) on the engine's request.
type fieldRule struct {
	section, routes string
	field, rule     string
	json            string // fields of the body, in addition to messages or prompt
	holds           func(engine.Request) bool
}

func params(f func(sample.Params) bool) func(engine.Request) bool {
	return func(r engine.Request) bool { return f(r.Params) }
}

var fieldRules = []fieldRule{
	{"2.1", "ct", "unknown", "is ignored", `"nobody_knows":{"a":[1]}`, func(engine.Request) bool { return true }},
	{"2.1", "ct", "null", "is as if absent", `"temperature":null,"n":null,"stop":null,"seed":null,"logit_bias":null,"stream":null,"tools":null`,
		params(func(p sample.Params) bool { return p.Temperature == 1 && p.LogitBias == nil })},
	{"2.1", "ct", "user, metadata, store, service_tier, prompt_cache_key", "have no effect",
		`"user":"u","metadata":{"a":1},"store":true,"service_tier":"auto","prompt_cache_key":"k"`, func(engine.Request) bool { return true }},
	{"3.1", "ct", "frequency_penalty", "reaches the sampler", `"frequency_penalty":0.5`, params(func(p sample.Params) bool { return p.Frequency == 0.5 })},
	{"3.1", "ct", "presence_penalty", "reaches the sampler", `"presence_penalty":-2`, params(func(p sample.Params) bool { return p.Presence == -2 })},
	{"3.1", "ct", "repetition_penalty", "reaches the sampler", `"repetition_penalty":1.25`, params(func(p sample.Params) bool { return p.Repetition == 1.25 })},
	{"3.1", "ct", "temperature", "reaches the sampler", `"temperature":0.25`, params(func(p sample.Params) bool { return p.Temperature == 0.25 })},
	{"3.1", "ct", "temperature", "is 1 by default", ``, params(func(p sample.Params) bool { return p.Temperature == 1 })},
	{"3.1", "ct", "top_p", "reaches the sampler", `"top_p":0.5`, params(func(p sample.Params) bool { return p.TopP == 0.5 })},
	{"3.1", "ct", "top_k", "reaches the sampler", `"top_k":7`, params(func(p sample.Params) bool { return p.TopK == 7 })},
	{"3.1", "ct", "top_k", "0 and -1 are off", `"top_k":-1`, params(func(p sample.Params) bool { return p.TopK <= 0 })},
	{"3.1", "ct", "min_p", "reaches the sampler", `"min_p":0.25`, params(func(p sample.Params) bool { return p.MinP == 0.25 })},
	{"3.1", "ct", "seed", "reaches the sampler", `"seed":9`, params(func(p sample.Params) bool { return p.HasSeed && p.Seed == 9 })},
	{"3.1", "ct", "seed", "-1 is none", `"seed":-1`, params(func(p sample.Params) bool { return !p.HasSeed })},
	{"3.1", "ct", "seed", "takes 64 bits", `"seed":9223372036854775807`, params(func(p sample.Params) bool { return p.Seed == math.MaxInt64 })},
	{"3.1", "ct", "logit_bias", "is clamped to [-100, 100]", `"logit_bias":{"5":200,"6":-200}`,
		params(func(p sample.Params) bool {
			return slices.Equal(p.LogitBias, []sample.Bias{{Token: 5, Value: 100}, {Token: 6, Value: -100}})
		})},
	{"3.1", "ct", "n", "is the number of choices", `"n":3`, func(r engine.Request) bool { return r.N == 3 }},
	{"3.1", "ct", "stop_token_ids", "reaches the sampler", `"stop_token_ids":[7]`, params(func(p sample.Params) bool { return slices.Equal(p.StopTokenIDs, []int32{7}) })},
	{"3.1", "ct", "ignore_eos", "reaches the sampler", `"ignore_eos":true`, params(func(p sample.Params) bool { return p.IgnoreEOS })},
	{"3.1", "ct", "min_tokens", "reaches the sampler", `"min_tokens":4`, params(func(p sample.Params) bool { return p.MinTokens == 4 })},
	{"3.1", "ct", "allowed_token_ids", "reaches the sampler", `"allowed_token_ids":[1,2]`, params(func(p sample.Params) bool { return slices.Equal(p.AllowedTokenIDs, []int32{1, 2}) })},
	{"5.2", "ct", "bad_words", "are encoded with and without a space", `"bad_words":["no"]`,
		params(func(p sample.Params) bool {
			return reflect.DeepEqual(p.BadWords, [][]int32{{'n', 'o'}, {' ', 'n', 'o'}})
		})},
	{"3.1", "ct", "prompt_logprobs", "reaches the sampler", `"prompt_logprobs":2`, params(func(p sample.Params) bool { return p.PromptLogprobs == 2 })},
	{"3.1", "ct", "cache_salt", "separates the prefix cache", `"cache_salt":"s"`, func(r engine.Request) bool { return r.Salt == "s" }},
	{"3.1", "ct", "priority", "0 is allowed", `"priority":0`, func(r engine.Request) bool { return r.Priority == 0 }},
	{"3.1", "ct", "spaces_between_special_tokens", "is accepted", `"spaces_between_special_tokens":false`, func(engine.Request) bool { return true }},
	{"3.1", "ct", "request_id", "names the request", `"request_id":"mine"`, func(r engine.Request) bool { return strings.Contains(r.ID, "mine") }},
	{"3.1", "ct", "kv_transfer_params, vllm_xargs, mm_processor_kwargs, media_io_kwargs", "have no effect on text",
		`"kv_transfer_params":{"do_remote_prefill":true},"vllm_xargs":{"a":1},"mm_processor_kwargs":{},"media_io_kwargs":{}`, func(engine.Request) bool { return true }},
	{"3.1", "ct", "truncate_prompt_tokens", "keeps the last tokens", `"truncate_prompt_tokens":1`, func(r engine.Request) bool { return len(r.Prompt) == 1 }},
	{"3.1", "ct", "truncate_prompt_tokens", "-1 keeps as many tokens as fit", `"truncate_prompt_tokens":-1`, func(r engine.Request) bool { return len(r.Prompt) > 1 }},
	{"3.1", "c", "logprobs", "false is none", `"logprobs":false`, params(func(p sample.Params) bool { return p.Logprobs == -1 })},
	{"3.1", "c", "logprobs", "true is those of the chosen tokens", `"logprobs":true`, params(func(p sample.Params) bool { return p.Logprobs == 0 })},
	{"3.1", "c", "top_logprobs", "is how many", `"logprobs":true,"top_logprobs":3`, params(func(p sample.Params) bool { return p.Logprobs == 3 })},
	{"3.1", "c", "max_tokens", "bounds the reply", `"max_tokens":9`, params(func(p sample.Params) bool { return p.MaxTokens == 9 })},
	{"3.1", "c", "max_completion_tokens", "wins over max_tokens", `"max_tokens":9,"max_completion_tokens":8`, params(func(p sample.Params) bool { return p.MaxTokens == 8 })},
	{"3.5", "c", "max_tokens", "is what the context allows by default", ``, func(r engine.Request) bool { return r.Params.MaxTokens == chattest.ModelLen-len(r.Prompt) }},
	{"3.1", "c", "add_special_tokens", "is false by default", ``, func(r engine.Request) bool { return r.Prompt[0] != chattest.BOS }},
	{"3.1", "c", "add_special_tokens", "true adds them", `"add_special_tokens":true`, func(r engine.Request) bool { return r.Prompt[0] == chattest.BOS }},
	{"4", "t", "add_special_tokens", "is true by default", ``, func(r engine.Request) bool { return r.Prompt[0] == chattest.BOS }},
	{"4", "t", "add_special_tokens", "false adds none", `"add_special_tokens":false`, func(r engine.Request) bool { return r.Prompt[0] != chattest.BOS }},
	{"4", "t", "max_tokens", "is 16 by default", ``, params(func(p sample.Params) bool { return p.MaxTokens == 16 })},
	{"4", "t", "logprobs", "is how many", `"logprobs":3`, params(func(p sample.Params) bool { return p.Logprobs == 3 })},
	{"4", "t", "logprobs", "0 is those of the chosen tokens", `"logprobs":0`, params(func(p sample.Params) bool { return p.Logprobs == 0 })},
	{"4", "t", "echo", "with logprobs has the prompt's", `"echo":true,"logprobs":2`, params(func(p sample.Params) bool { return p.PromptLogprobs == 2 })},
	{"4", "t", "best_of", "n is no more", `"n":2,"best_of":2`, func(r engine.Request) bool { return r.N == 2 }},
	{"3.1", "ct", "thinking_token_budget", "-1 is none", `"thinking_token_budget":-1`, func(r engine.Request) bool { return r.Thinking == nil }},
	{"5.2", "ct", "temperature", "0 is greedy, whatever else is asked", `"temperature":0,"top_p":0.5,"top_k":3,"min_p":0.5`, params(func(p sample.Params) bool { return p.Greedy() })},
	{"5.4", "ct", "eos", "every id of the model ends a reply, the tokenizer's own first", ``,
		params(func(p sample.Params) bool { return slices.Equal(p.EOS, []int32{chattest.EOS, chattest.Turn}) })},
}

// TestFields checks the effect of each field of a request. A subtest's name is section,
// route, field and rule.
func TestFields(t *testing.T) {
	for _, r := range fieldRules {
		for _, route := range r.routes {
			path, body := "/v1/chat/completions", `{"messages":[{"role":"user","content":"hi"}]`
			if route == 't' {
				path, body = "/v1/completions", `{"prompt":"hi"`
			}
			t.Run(strings.Join([]string{r.section, path, r.field, r.rule}, "|"), func(t *testing.T) {
				if r.json != "" {
					body += "," + r.json
				}
				m := &chattest.Model{}
				w := post(testServer(m, testSettings()), path, body+"}")
				list := m.Requests()
				if w.Code != 200 || len(list) != 1 || !r.holds(list[0]) {
					t.Errorf("%s}: %d %s; the engine was asked for %+v", body, w.Code, w.Body, list)
				}
			})
		}
	}
}

// replyRule is one row of the sections on replies: the effect of a field on the value at
// a path in the reply's JSON.
type replyRule struct {
	section, route string
	field, rule    string
	json           string
	at, want       string // the value at a path such as choices.0.text, as JSON
}

var replyRules = []replyRule{
	{"2.1", "c", "model", "absent is the first served name", ``, "model", `"test"`},
	{"2.1", "c", "model", "empty is the first served name", `"model":""`, "model", `"test"`},
	{"2.1", "t", "model", "an alias is carried", `"model":"also"`, "model", `"also"`},
	{"2.6", "t", "usage", "counts the final stop token", ``, "usage.completion_tokens", `8`},
	{"2.6", "t", "usage", "is summed over choices", `"n":2`, "usage.completion_tokens", `16`},
	{"2.6", "t", "usage", "counts the prompt once", `"n":2`, "usage.prompt_tokens", `3`},
	{"3.3", "c", "return_token_ids", "gives the reply's tokens", `"return_token_ids":true`, "choices.0.token_ids.0", `97`},
	{"3.3", "c", "return_token_ids", "gives the prompt's tokens", `"return_token_ids":true`, "prompt_token_ids.0", `91`},
	{"3.3", "c", "return_token_ids", "is off by default", ``, "prompt_token_ids", `null`},
	{"4", "t", "return_token_ids", "gives the prompt's tokens with the choice", `"return_token_ids":true`, "choices.0.prompt_token_ids.1", `104`},
	{"3.3", "c", "return_tokens_as_token_ids", "names tokens", `"logprobs":true,"return_tokens_as_token_ids":true`, "choices.0.logprobs.content.0.token", `"token_id:97"`},
	{"4", "t", "return_tokens_as_token_ids", "names tokens", `"logprobs":0,"return_tokens_as_token_ids":true`, "choices.0.logprobs.tokens.0", `"token_id:97"`},
	{"3.3", "c", "top_logprobs", "0 is an empty list", `"logprobs":true,"top_logprobs":0`, "choices.0.logprobs.content.0.top_logprobs", `[]`},
	{"3.3", "c", "logprobs", "bytes are those of the token", `"logprobs":true`, "choices.0.logprobs.content.0.bytes", `[97]`},
	{"3.3", "c", "prompt_logprobs", "begin with null", `"prompt_logprobs":0`, "prompt_logprobs.0", `null`},
	{"3.3", "c", "prompt_logprobs", "have the rank", `"prompt_logprobs":0`, "prompt_logprobs.1.117.rank", `2`},
	{"3.1", "c", "echo", "prepends the last message of the reply's role", `"echo":true,"add_generation_prompt":false,"continue_final_message":true`, "choices.0.message.content", `"hiabc def"`},
	{"3.1", "c", "echo", "prepends nothing of another role", `"echo":true`, "choices.0.message.content", `"abc def"`},
	{"4", "t", "echo", "prepends the prompt", `"echo":true`, "choices.0.text", `"hiabc def"`},
	{"4", "t", "echo", "alone computes nothing", `"echo":true,"max_tokens":0`, "choices.0.text", `"hi"`},
	{"4", "t", "echo", "the first logprob is null", `"echo":true,"logprobs":1`, "choices.0.logprobs.token_logprobs.0", `null`},
	{"4", "t", "logprobs", "offsets count characters of the text", `"logprobs":0`, "choices.0.logprobs.text_offset", `[0,1,2,3,4,5,6,7]`},
	{"5.3", "t", "finish_reason", "is stop at EOS", ``, "choices.0.finish_reason", `"stop"`},
	{"5.3", "t", "stop_reason", "is null at EOS", ``, "choices.0.stop_reason", `null`},
	{"5.3", "t", "finish_reason", "is length at max_tokens", `"max_tokens":3`, "choices.0.finish_reason", `"length"`},
	{"5.3", "t", "stop_reason", "is null at max_tokens", `"max_tokens":3`, "choices.0.stop_reason", `null`},
	{"5.3", "t", "stop", "ends before the string", `"stop":"d"`, "choices.0.text", `"abc "`},
	{"5.3", "t", "stop", "is returned", `"stop":["x","d"]`, "choices.0.stop_reason", `"d"`},
	{"5.3", "t", "stop", "may be one string", `"stop":"d"`, "choices.0.finish_reason", `"stop"`},
	{"5.3", "t", "stop", "the first in the list where two end", `"stop":["c d","d"]`, "choices.0.stop_reason", `"c d"`},
	{"5.3", "t", "include_stop_str_in_output", "ends after the string", `"stop":"d","include_stop_str_in_output":true`, "choices.0.text", `"abc d"`},
	{"5.3", "t", "min_tokens", "stop strings before it do not count", `"stop":["b","e"],"min_tokens":4`, "choices.0.stop_reason", `"e"`},
	{"5.3", "t", "stop", "is not looked for in the prompt", `"stop":"h","echo":true`, "choices.0.text", `"hiabc def"`},
	{"5.3", "t", "repetition_detection", "finds no repetition here", `"repetition_detection":{"max_pattern_size":3,"min_count":2}`, "choices.0.finish_reason", `"stop"`},
}

// TestReplies checks the effect of fields on a reply of a model that says "abc def".
func TestReplies(t *testing.T) {
	m := &chattest.Model{Say: func(engine.Request, int) chattest.Script { return chattest.Script{Text: "abc def"} }}
	s := testServer(m, testSettings())
	for _, r := range replyRules {
		path, body := "/v1/chat/completions", `{"messages":[{"role":"user","content":"hi"}]`
		if r.route == "t" {
			path, body = "/v1/completions", `{"prompt":"hi"`
		}
		t.Run(strings.Join([]string{r.section, path, r.field, r.rule}, "|"), func(t *testing.T) {
			if r.json != "" {
				body += "," + r.json
			}
			w := post(s, path, body+"}")
			if got := at(t, w.Body.Bytes(), r.at); got != r.want {
				t.Errorf("%s}: %s is %s, want %s; %s", body, r.at, got, r.want, w.Body)
			}
		})
	}
}

// TestReasoningFields checks the fields about reasoning with a reasoning model.
func TestReasoningFields(t *testing.T) {
	m := &chattest.Model{Say: func(engine.Request, int) chattest.Script { return chattest.Script{Text: "hm</think>Yes"} }}
	set := testSettings()
	set.Chat.Reasoning = "qwen3"
	s := testServer(m, set)
	for _, r := range []replyRule{
		{"3.3", "c", "reasoning", "has the thought", ``, "choices.0.message.reasoning", `"hm"`},
		{"3.3", "c", "reasoning_content", "is not there", ``, "choices.0.message.reasoning_content", `null`},
		{"3.3", "c", "content", "has no thought", ``, "choices.0.message.content", `"Yes"`},
		{"3.1", "c", "include_reasoning", "false hides the thought", `"include_reasoning":false`, "choices.0.message.reasoning", `null`},
		{"3.1", "c", "include_reasoning", "false leaves the content", `"include_reasoning":false`, "choices.0.message.content", `"Yes"`},
		{"3.1", "c", "reasoning_effort", "none shows no thought", `"reasoning_effort":"none"`, "choices.0.message.reasoning", `null`},
		{"3.1", "c", "reasoning_effort", "minimal is known", `"reasoning_effort":"minimal"`, "choices.0.message.reasoning", `"hm"`},
		{"3.1", "c", "reasoning_effort", "low is known", `"reasoning_effort":"low"`, "choices.0.message.reasoning", `"hm"`},
		{"3.1", "c", "reasoning_effort", "medium is known", `"reasoning_effort":"medium"`, "choices.0.message.reasoning", `"hm"`},
		{"3.1", "c", "reasoning_effort", "high is known", `"reasoning_effort":"high"`, "choices.0.message.reasoning", `"hm"`},
		{"3.1", "c", "reasoning_effort", "xhigh is known", `"reasoning_effort":"xhigh"`, "choices.0.message.reasoning", `"hm"`},
		{"3.1", "c", "reasoning_effort", "max is known", `"reasoning_effort":"max"`, "choices.0.message.reasoning", `"hm"`},
		{"3.1", "c", "reasoning_effort", "another word is refused", `"reasoning_effort":"huge"`, "error.param", `"reasoning_effort"`},
		{"3.1", "c", "thinking_token_budget", "is taken", `"thinking_token_budget":9`, "choices.0.message.reasoning", `"hm"`},
	} {
		t.Run(strings.Join([]string{r.section, "/v1/chat/completions", r.field, r.rule}, "|"), func(t *testing.T) {
			body := `{"messages":[{"role":"user","content":"hi"}]`
			if r.json != "" {
				body += "," + r.json
			}
			if got := at(t, post(s, "/v1/chat/completions", body+"}").Body.Bytes(), r.at); got != r.want {
				t.Errorf("%s}: %s is %s, want %s", body, r.at, got, r.want)
			}
		})
	}
	for i, r := range m.Requests() {
		if last := i == len(m.Requests())-1; (r.Thinking != nil) != last {
			t.Errorf("request %d: %+v", i, r.Thinking)
		}
	}
}

// TestWhatIsLogged checks that unknown fields are logged at debug, deprecated fields as
// warnings, and trace headers as one warning.
func TestWhatIsLogged(t *testing.T) {
	var out bytes.Buffer
	s := New(Config{
		State: &state{chattest.Service(&chattest.Model{}), "ready"},
		Log:   slog.New(slog.NewTextHandler(&out, &slog.HandlerOptions{Level: slog.LevelDebug})),
	}, testSettings())
	for range 2 {
		r := httptest.NewRequest("POST", "/v1/completions", strings.NewReader(`{"prompt":"hi","nobody_knows":1,"vllm_xargs":{},"guided_regex":"a"}`))
		r.Header.Set("Content-Type", "application/json")
		r.Header.Set("Traceparent", "00-1-1-01")
		s.Handler().ServeHTTP(httptest.NewRecorder(), r)
	}
	for text, want := range map[string]int{"nobody_knows": 2, "vllm_xargs": 2, "fields=[guided_regex]": 2, "level=WARN msg=\"traces are not followed": 1, "level=DEBUG msg=\"unknown fields": 2} {
		if got := strings.Count(out.String(), text); got != want {
			t.Errorf("%s: %d times, want %d: %s", text, got, want, out.String())
		}
	}
}

// at returns the JSON at a path of names and indices.
func at(t *testing.T, body []byte, path string) string {
	t.Helper()
	var v any
	if err := json.Unmarshal(body, &v); err != nil {
		t.Fatal(err)
	}
	for step := range strings.SplitSeq(path, ".") {
		switch x := v.(type) {
		case map[string]any:
			v = x[step]
		case []any:
			i := int(step[0] - '0')
			if i >= len(x) {
				return "nothing"
			}
			v = x[i]
		default:
			return "nothing"
		}
	}
	out, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(out)
}
