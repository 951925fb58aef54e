package api

import (
	"encoding/json"
	"net/http/httptest"
	"strings"
	"testing"

	"vapp.dev/appliance/chat/chattest"
)

// refusal is a request that must be refused, with the expected error.
type refusal struct {
	body   string // starts with c for a chat, with t for a completion
	status int
	kind   string
	param  string // "" for null
	text   string // the message; a part of it if it begins with …
}

const (
	early = "Bad Request"
	late  = "BadRequestError"
)

var unsupportedFields = map[string][]refusal{
	"decoding": {
		{`c{`, 400, early, "", "…JSON decode error"},
		{`c[]`, 400, early, "", "The body must be a JSON object."},
		{`cnull`, 400, early, "", "The body must be a JSON object."},
		{`c{} {}`, 400, early, "", "…JSON decode error"},
		{`c{"messages":` + strings.Repeat("[", 200) + strings.Repeat("]", 200) + `}`, 400, early, "", "…nests deeper than 100"},
		{`c{}`, 400, early, "messages", "Field required: `messages`."},
		{`c{"messages":[]}`, 400, early, "messages", "`messages` must be an array of at least one message."},
		{`c{"messages":"hi"}`, 400, early, "messages", "…`messages` must be an array"},
		{`c{"messages":[3]}`, 400, early, "messages.0", "`messages.0` must be an object."},
		{`c{"messages":[{"content":"x"}]}`, 400, early, "messages.0.role", "Field required: `messages.0.role`."},
		{`c{"messages":[{"role":"user","content":7}]}`, 400, early, "messages.0.content", "`messages.0.content` must be a string, null or an array of parts."},
		{`c{"messages":[{"role":"user","content":[{"type":"smell"}]}]}`, 400, early, "messages.0.content.0.type", "…Unknown part type"},
		{`c{"messages":[{"role":"user","content":[{"type":"text"}]}]}`, 400, early, "messages.0.content.0.text", "…Field required"},
		{`c{"messages":[{"role":"user","content":[{"type":"image_url","image_url":{"url":"x"}}]}]}`, 400, late, "messages", "…not a multimodal model"},
		{`c{"messages":[{"role":"user","content":[{"image_url":"x"}]}]}`, 400, late, "messages", "…not a multimodal model"},
		{`cM,"temperature":"hot"}`, 400, early, "temperature", "`temperature` must be a number."},
		{`cM,"n":1.5}`, 400, early, "n", "`n` must be an integer."},
		{`cM,"max_tokens":99999999999}`, 400, early, "max_tokens", "`max_tokens` must be an integer of 32 bits."},
		{`cM,"stream":"yes"}`, 400, early, "stream", "`stream` must be true or false."},
		{`cM,"stop":[1]}`, 400, early, "stop", "`stop` must be a string or an array of strings."},
		{`cM,"logit_bias":{"x":1}}`, 400, early, "logit_bias", "logit_bias contains key(s) that cannot be converted to integer token IDs: ['x']"},
		{`cM,"response_format":{"type":"poem"}}`, 400, early, "response_format.type", "…must be text, json_object"},
		{`t{}`, 400, early, "prompt", "Either prompt or prompt_embeds must be provided and non-empty."},
		{`t{"prompt":""}`, 400, early, "prompt", "Either prompt or prompt_embeds must be provided and non-empty."},
		{`t{"prompt":["a",""]}`, 400, early, "prompt", "Either prompt or prompt_embeds must be provided and non-empty."},
		{`t{"prompt":[]}`, 400, early, "prompt", "Either prompt or prompt_embeds must be provided and non-empty."},
		{`t{"prompt":{"a":1}}`, 400, early, "prompt", "…`prompt` must be a string, an array of strings"},
		{`t{"prompt":[1,"a"]}`, 400, early, "prompt", "…`prompt` must be a string, an array of strings"},
		{`t{"prompt":["a",1]}`, 400, early, "prompt", "…`prompt` must be a string, an array of strings"},
		{`t{"prompt":[null]}`, 400, early, "prompt", "…`prompt` must be a string, an array of strings"},
	},
	"rules of section 5.1": {
		{`cM,"n":0}`, 400, late, "n", "n must be at least 1, got 0."},
		{`cM,"n":129}`, 400, late, "n", "n must be at most 128, got 129."},
		{`cM,"presence_penalty":2.5}`, 400, late, "presence_penalty", "presence_penalty must be in [-2, 2], got 2.5."},
		{`cM,"frequency_penalty":-3}`, 400, late, "frequency_penalty", "frequency_penalty must be in [-2, 2], got -3.0."},
		{`cM,"repetition_penalty":0}`, 400, late, "repetition_penalty", "repetition_penalty must be greater than zero, got 0.0."},
		{`cM,"temperature":-0.5}`, 400, late, "temperature", "temperature must be non-negative, got -0.5."},
		{`cM,"top_p":0}`, 400, late, "top_p", "top_p must be in (0, 1], got 0.0."},
		{`cM,"top_p":1.5}`, 400, late, "top_p", "top_p must be in (0, 1], got 1.5."},
		{`cM,"top_k":-2}`, 400, late, "top_k", "top_k must be 0 (disable), or at least 1, got -2."},
		{`cM,"min_p":2}`, 400, late, "min_p", "min_p must be in [0, 1], got 2.0."},
		{`cM,"max_tokens":0}`, 400, late, "max_tokens", "max_tokens must be at least 1, got 0."},
		{`cM,"max_completion_tokens":-4}`, 400, late, "max_tokens", "max_tokens must be at least 1, got -4."},
		{`tP,"max_tokens":0}`, 400, late, "max_tokens", "max_tokens must be at least 1, got 0."},
		{`cM,"max_tokens":201}`, 400, late, "max_tokens", "max_tokens=201 cannot be greater than max_model_len=200. Please request fewer output tokens."},
		{`cM,"min_tokens":-1}`, 400, late, "min_tokens", "min_tokens must be greater than or equal to 0, got -1."},
		{`cM,"max_tokens":3,"min_tokens":4}`, 400, late, "min_tokens", "min_tokens must be less than or equal to max_tokens=3, got 4."},
		{`cM,"stop":["a",""]}`, 400, late, "stop", "stop cannot contain an empty string."},
		{`cM,"temperature":0,"n":2}`, 400, late, "n", "n must be 1 when using greedy sampling, got 2."},
		{`cM,"logprobs":true,"top_logprobs":21}`, 400, late, "logprobs", "Requested sample logprobs of 21, which is greater than max allowed: 20"},
		{`cM,"logprobs":true,"top_logprobs":-1}`, 400, late, "logprobs", "Requested sample logprobs of 260, which is greater than max allowed: 20"},
		{`cM,"prompt_logprobs":30}`, 400, late, "prompt_logprobs", "Requested prompt logprobs of 30, which is greater than max allowed: 20"},
		{`cM,"top_logprobs":3}`, 400, early, "top_logprobs", "when using `top_logprobs`, `logprobs` must be set to true."},
		{`cM,"logprobs":true,"top_logprobs":-2}`, 400, early, "top_logprobs", "`top_logprobs` must be a positive value or -1."},
		{`tP,"logprobs":-1}`, 400, early, "logprobs", "`logprobs` must be a positive value."},
		{`cM,"prompt_logprobs":1,"stream":true}`, 400, early, "prompt_logprobs", "`prompt_logprobs` are not available when `stream=True`."},
		{`cM,"stream_options":{"include_usage":true}}`, 400, early, "stream_options", "Stream options can only be defined when `stream=True`."},
		{`cM,"logit_bias":{"260":1,"5":1,"999":0}}`, 400, late, "logit_bias", "token_id(s) [260, 999] in logit_bias contain out-of-vocab token ids. Vocabulary size: 260"},
		{`cM,"logit_bias":{"-1":1}}`, 400, late, "logit_bias", "…out-of-vocab"},
		{`cM,"allowed_token_ids":[1,999]}`, 400, late, "allowed_token_ids", "…allowed_token_ids contains out-of-vocab token id!"},
		{`cM,"allowed_token_ids":[]}`, 400, late, "allowed_token_ids", "allowed_token_ids is not None and empty!"},
		{`cM,"bad_words":["a",""]}`, 400, late, "bad_words", "bad_words cannot contain an empty string."},
		{`cM,"cache_salt":""}`, 400, early, "cache_salt", "Parameter 'cache_salt' must be a non-empty string if provided."},
		{`cM,"continue_final_message":true}`, 400, early, "continue_final_message", "Cannot set both `continue_final_message` and `add_generation_prompt` to True."},
	},
	"rules of section 2.4": {
		{`cM,"model":"none"}`, 404, "NotFoundError", "model", "The model `none` does not exist."},
		{`tP,"model":"none"}`, 404, "NotFoundError", "model", "The model `none` does not exist."},
		{`cM,"max_tokens":190}`, 400, late, "input_tokens", "This model's maximum context length is 200 tokens. However, you requested 190 output tokens and your prompt contains 19 input tokens, for a total of 209 tokens. Please reduce the length of the input prompt or the number of requested output tokens."},
		{`cL181,"max_tokens":3}`, 400, late, "input_tokens", "…3 output tokens and your prompt contains 198 input tokens, for a total of 201 tokens."},
		{`cL183}`, 400, late, "max_tokens", "max_tokens must be at least 1, got 0."},
		{`cL184}`, 400, late, "input_tokens", "…However, you requested 0 output tokens and your prompt contains 201 input tokens"},
		{`cL5000,"max_tokens":3}`, 400, late, "input_text", "…your prompt contains 5017 characters"},
		{`tP,"truncate_prompt_tokens":185}`, 400, late, "truncate_prompt_tokens", "truncate_prompt_tokens value (185) is greater than max_model_len - requested output tokens (184). Please request a smaller truncation size."},
		{`tP,"truncate_prompt_tokens":-2}`, 400, late, "truncate_prompt_tokens", "…must be -1 or at least 1, got -2."},
		{`c{"messages":[{"role":"system","content":"raise Roles must alternate!"}]}`, 400, late, "", "Roles must alternate!"},
		{`cM,"chat_template":"x"}`, 400, late, "chat_template", "Chat template is passed with request, but --trust-request-chat-template is not set. Refused request with untrusted chat template."},
		{`cM,"chat_template_kwargs":{"chat_template":"x"}}`, 400, late, "chat_template", "Chat template is passed with request, but --trust-request-chat-template is not set. Refused request with untrusted chat template."},
		{`cM,"tools":[T]}`, 400, late, "tool_choice", `"auto" tool choice requires --enable-auto-tool-choice and --tool-call-parser to be set (parsers.autoToolChoice and parsers.toolCall of the profile)`},
		{`cM,"tools":[T],"tool_choice":"required"}`, 400, late, "tool_choice", `tool_choice="required" requires --tool-call-parser to be set (parsers.toolCall of the profile)`},
		{`cM,"tools":[T],"tool_choice":{"type":"function","function":{"name":"f"}}}`, 400, late, "tool_choice", `tool_choice=function "f" requires --tool-call-parser to be set (parsers.toolCall of the profile)`},
		{`tP,"suffix":"x"}`, 400, late, "suffix", "suffix is not currently supported"},
		{`cM,"priority":1}`, 400, late, "priority", "…priority scheduling is not enabled"},
		{`cM,"continue_final_message":true,"add_generation_prompt":false,"messages":[{"role":"user","content":" "}]}`, 400, late, "continue_final_message", "…no text to continue"},
		{`t{"prompt":[1,260]}`, 400, late, "prompt", "…out of vocabulary"},
		{`t{"prompt":[[1],[-1]]}`, 400, late, "prompt", "…out of vocabulary"},
		{`tP,"n":3,"best_of":2}`, 400, late, "best_of", "best_of must be greater than or equal to n, got n=3 and best_of=2."},
		{`tP,"best_of":2}`, 400, late, "best_of", "…best_of above n is not supported"},
	},
	"rules of section 6.1": {
		{`cM,"tool_choice":"auto"}`, 400, late, "tool_choice", "When using `tool_choice`, `tools` must be set."},
		{`cM,"tools":[T],"tool_choice":"maybe"}`, 400, late, "tool_choice", "Invalid value for `tool_choice`: maybe! Only named tools, \"none\", \"auto\" or \"required\" are supported."},
		{`cM,"tools":[T],"tool_choice":{"type":"function","function":{"name":"g"}}}`, 400, late, "tool_choice", "The tool specified in `tool_choice` does not match any of the specified `tools`"},
		{`cM,"tool_choice":"maybe"}`, 400, late, "tool_choice", "When using `tool_choice`, `tools` must be set."},
		{`cM,"tools":[T],"tool_choice":7}`, 400, late, "tool_choice", "Invalid value for `tool_choice`: 7! Only named tools, \"none\", \"auto\" or \"required\" are supported."},
		{`cM,"tools":[T],"tool_choice":{"type":"function"}}`, 400, early, "tool_choice.function", "Invalid value for `function`: `None` in `tool_choice`! Correct usage: `{\"type\": \"function\", \"function\": {\"name\": \"my_function\"}}`"},
		{`cM,"tools":[T],"tool_choice":{"function":"f"}}`, 400, early, "tool_choice.function", "…Invalid value for `function`: `f` in `tool_choice`! Correct usage: "},
		{`cM,"tools":[T],"tool_choice":{"function":{}}}`, 400, early, "tool_choice.function.name", "Expected field `name` in `function` in `tool_choice`! Correct usage: `{\"type\": \"function\", \"function\": {\"name\": \"my_function\"}}`"},
		{`cM,"tools":[T],"tool_choice":{"function":{"name":""}}}`, 400, early, "tool_choice.function.name", "…Invalid `name` in `function`: `` in `tool_choice`! Correct usage: "},
		{`cM,"tools":[],"tool_choice":"required"}`, 400, late, "tools", "`tools` must not be an empty array. Either provide at least one tool or omit the field entirely."},
		{`cM,"tools":[T,T],"tool_choice":"none"}`, 400, late, "tools", `Tool names must be unique, got "f" twice.`},
		{`cM,"tools":[{"type":"function","function":{}}]}`, 400, early, "tools.0.function.name", "…Field required"},
	},
	"structured outputs": {
		{`cM,"response_format":{"type":"json_schema","json_schema":{}}}`, 400, early, "response_format.json_schema.schema", "Field required: `response_format.json_schema.schema`."},
		{`cM,"response_format":{"type":"json_schema","json_schema":{"schema":[]}}}`, 400, early, "response_format.json_schema.schema", "…a JSON schema is an object"},
		{`cM,"response_format":{"type":"json_schema","json_schema":{"schema":{"type":"colour"}}}}`, 400, late, "response_format", "Grammar error: Invalid type: colour."},
		{`cM,"response_format":{"type":"json_schema","json_schema":{"schema":{"not":{}}}}}`, 400, late, "response_format", "…not"},
		{`cM,"response_format":{"type":"structural_tag"}}`, 400, early, "response_format", `…Invalid response_format structural_tag specification.`},
		{`cM,"response_format":{"type":"structural_tag","structures":[{"begin":"<a>","schema":{},"end":""}],"triggers":["<b"]}}`, 400, early, "response_format", `…no trigger begins the structure "<a>"`},
		{`cM,"response_format":{"type":"json_schema"}}`, 400, early, "response_format", "When response_format type is 'json_schema', the 'json_schema' field must be provided."},
		{`cM,"structured_outputs":{}}`, 400, early, "structured_outputs", "…You must use one kind of structured outputs constraint but none are specified: "},
		{`cM,"structured_outputs":{"regex":"a","choice":["b"]}}`, 400, early, "structured_outputs.choice", "You can only use one kind of constraints for structured outputs ('json', 'regex' or 'choice')."},
		{`cM,"structured_outputs":{"regex":"a","grammar":"start: \"b\""}}`, 400, early, "structured_outputs.grammar", "…You can only use one kind of structured outputs constraint but multiple are specified: "},
		{`cM,"structured_outputs":{"regex":"a"},"response_format":{"type":"json_object"}}`, 400, early, "structured_outputs.regex", "…You can only use one kind of structured outputs constraint but multiple are specified: "},
		{`cM,"structured_outputs":{"grammar":" \n"}}`, 400, early, "structured_outputs.grammar", "structured_outputs.grammar cannot be an empty string"},
		{`cM,"structured_outputs":{"json":""}}`, 400, early, "structured_outputs.json", "structured_outputs.json cannot be an empty string"},
		{`cM,"structured_outputs":{"json_object":false}}`, 400, early, "structured_outputs.json_object", "structured_outputs.json_object must be True if set; omit structured_outputs to disable structured outputs"},
		{`cM,"structured_outputs":{"structural_tag":"{}"}}`, 400, early, "structured_outputs.structural_tag", "…Invalid structured_outputs structural_tag specification."},
		{`cM,"structured_outputs":{"regex":"(("}}`, 400, late, "structured_outputs.regex", "…Grammar error: "},
		{`cM,"structured_outputs":{"regex":7}}`, 400, early, "structured_outputs.regex", "…must be a string"},
		{`cM,"structured_outputs":{"choice":[]}}`, 400, early, "structured_outputs.choice", "Choice '[]' cannot be an empty list"},
		{`cM,"structured_outputs":{"json":"{"}}`, 400, early, "structured_outputs.json", "…Invalid JSON grammar specification."},
		{`cM,"structured_outputs":{"grammar":"root ::= (\"a\""}}`, 400, early, "structured_outputs.grammar", "…Invalid grammar specification: "},
		{`tP,"structured_outputs":{"grammar":"start: nope"}}`, 400, late, "structured_outputs.grammar", "…Grammar error: "},
		{`cM,"guided_json":3}`, 400, early, "guided_json", "…a JSON schema is an object"},
		{`cM,"tools":[T],"structured_outputs":{"regex":"a"},"tool_choice":{"type":"function","function":{"name":"f"}}}`, 400, late, "tool_choice", `tool_choice=function "f" requires --tool-call-parser to be set (parsers.toolCall of the profile)`},
	},
	"what is not there": {
		{`tP,"prompt_embeds":"AAAA"}`, 400, late, "prompt_embeds", "…not as embeddings"},
		{`cM,"logits_processors":["x"]}`, 400, late, "logits_processors", "…runs no code of its clients"},
		{`cM,"audio":{"voice":"x"}}`, 400, late, "audio", "…speaks text alone"},
		{`cM,"kv_transfer_params":5}`, 400, early, "kv_transfer_params", "…must be an object"},
		{`cM,"vllm_xargs":[]}`, 400, early, "vllm_xargs", "…must be an object"},
	},
	"thinking, repetition, beams": {
		{`cM,"thinking_token_budget":5}`, 400, late, "thinking_token_budget", "…no reasoning parser"},
		{`cM,"thinking_token_budget":-2}`, 400, late, "thinking_token_budget", "thinking_token_budget must be at least 0, or -1 for none, got -2."},
		{`cM,"thinking_token_budget":"x"}`, 400, early, "thinking_token_budget", "`thinking_token_budget` must be an integer."},
		{`tP,"repetition_detection":{"max_pattern_size":4,"min_count":1}}`, 400, late, "repetition_detection", "…min_count must be at least 2, got 1."},
		{`tP,"repetition_detection":{"max_pattern_size":4,"min_pattern_size":5,"min_count":2}}`, 400, late, "repetition_detection", "…at most max_pattern_size, got 5 and 4."},
		{`tP,"repetition_detection":{"max_pattern_size":-1,"min_count":2}}`, 400, late, "repetition_detection", "…must not be negative"},
		{`tP,"repetition_detection":{"max_pattern_size":4096,"min_count":2}}`, 400, late, "repetition_detection", "…at most 2048, got 4096."},
		{`tP,"repetition_detection":{"max_pattern_size":"x"}}`, 400, early, "repetition_detection.max_pattern_size", "…must be an integer"},
		{`tP,"use_beam_search":true,"n":11,"temperature":0}`, 400, late, "logprobs", "Requested sample logprobs of 22, which is greater than max allowed: 20"},
		{`tP,"use_beam_search":true,"frequency_penalty":1}`, 400, late, "frequency_penalty", "…cannot be combined with use_beam_search"},
		{`tP,"use_beam_search":true,"repetition_penalty":1.5}`, 400, late, "repetition_penalty", "…cannot be combined with use_beam_search"},
		{`tP,"use_beam_search":true,"logit_bias":{"1":1}}`, 400, late, "logit_bias", "…cannot be combined with use_beam_search"},
		{`tP,"use_beam_search":true,"allowed_token_ids":[1]}`, 400, late, "allowed_token_ids", "…cannot be combined with use_beam_search"},
		{`tP,"use_beam_search":true,"bad_words":["x"]}`, 400, late, "bad_words", "…cannot be combined with use_beam_search"},
		{`tP,"use_beam_search":true,"prompt_logprobs":1}`, 400, late, "prompt_logprobs", "…cannot be combined with use_beam_search"},
		{`cM,"use_beam_search":true,"structured_outputs":{"regex":"a"}}`, 400, late, "structured_outputs", "…cannot be combined with use_beam_search"},
		{`cM,"use_beam_search":1}`, 400, early, "use_beam_search", "`use_beam_search` must be true or false."},
		{`cM,"length_penalty":"x"}`, 400, early, "length_penalty", "`length_penalty` must be a number."},
	},
}

// spell expands the short forms in a refusal's body.
func spell(body string) (path, text string) {
	path = map[byte]string{'c': "/v1/chat/completions", 't': "/v1/completions"}[body[0]]
	text = body[1:]
	const user = `{"messages":[{"role":"user","content":"`
	switch text[0] {
	case 'M':
		text = user + `hi"}]` + text[1:]
	case 'P':
		text = `{"prompt":"hi"` + text[1:]
	case 'L':
		n := 0
		rest := strings.TrimLeft(text[1:], "0123456789")
		for _, c := range text[1 : len(text)-len(rest)] {
			n = n*10 + int(c-'0')
		}
		text = user + strings.Repeat("x", n) + `"}]` + rest
	}
	tool := `{"type":"function","function":{"name":"f","parameters":{"type":"object"}}}`
	return path, strings.NewReplacer("[T]", "["+tool+"]", "[T,T]", "["+tool+","+tool+"]").Replace(text)
}

func TestRefusals(t *testing.T) {
	s := testServer(&chattest.Model{}, testSettings())
	for group, list := range unsupportedFields {
		for _, want := range list {
			path, body := spell(want.body)
			r := httptest.NewRequest("POST", path, strings.NewReader(body))
			r.Header.Set("Content-Type", "application/json; charset=utf-8")
			w := httptest.NewRecorder()
			s.Handler().ServeHTTP(w, r)
			var got struct {
				Error struct {
					Message, Type string
					Param         *string
					Code          int
				}
			}
			name := group + ": " + want.body
			if len(name) > 120 {
				name = name[:120]
			}
			if err := json.Unmarshal(w.Body.Bytes(), &got); err != nil {
				t.Errorf("%s: %v: %s", name, err, w.Body)
				continue
			}
			e, param := got.Error, ""
			if e.Param != nil {
				param = *e.Param
			}
			if w.Code != want.status || e.Code != want.status || e.Type != want.kind || param != want.param {
				t.Errorf("%s: got %d (code %d) %s, param %q: %s; want %d %s, param %q", name, w.Code, e.Code, e.Type, param, e.Message, want.status, want.kind, want.param)
			}
			part, isPart := strings.CutPrefix(want.text, "…")
			if isPart && !strings.Contains(e.Message, part) || !isPart && e.Message != want.text {
				t.Errorf("%s: says %q, want %q", name, e.Message, want.text)
			}
		}
	}
}
