package api

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"vapp.dev/appliance/chat/chattest"
	"vapp.dev/engine"
)

// TestRenderThenGenerate checks that a rendered request gives the same engine request as
// the original.
func TestRenderThenGenerate(t *testing.T) {
	const user = `"messages":[{"role":"user","content":"hi"}]`
	temperature := 0.25
	for _, x := range []struct{ path, body string }{
		{"/v1/chat/completions", `{` + user + `}`},
		{"/v1/chat/completions", `{` + user + `,"temperature":0.5,"top_p":0.5,"top_k":3,"min_p":0.25,"repetition_penalty":1.5}`},
		{"/v1/chat/completions", `{` + user + `,"presence_penalty":1,"frequency_penalty":-1,"seed":9,"n":2}`},
		{"/v1/chat/completions", `{` + user + `,"max_tokens":9,"min_tokens":4,"stop_token_ids":[7],"ignore_eos":true}`},
		{"/v1/chat/completions", `{` + user + `,"logprobs":true,"top_logprobs":3}`},
		{"/v1/chat/completions", `{` + user + `,"prompt_logprobs":2}`},
		{"/v1/chat/completions", `{` + user + `,"logit_bias":{"5":7,"6":-200},"allowed_token_ids":[5,6],"bad_words":["ab"]}`},
		{"/v1/chat/completions", `{` + user + `,"truncate_prompt_tokens":5,"cache_salt":"x"}`},
		{"/v1/chat/completions", `{` + user + `,"thinking_token_budget":7}`},
		{"/v1/chat/completions", `{` + user + `,"structured_outputs":{"regex":"[ab]"}}`},
		{"/v1/chat/completions", `{` + user + `,"response_format":{"type":"json_object"},"chat_template_kwargs":{"enable_thinking":false}}`},
		{"/v1/completions", `{"prompt":"hi","structured_outputs":{"choice":["a"]}}`},
		{"/v1/completions", `{"prompt":"hi","thinking_token_budget":7,"repetition_detection":{"max_pattern_size":3,"min_count":9}}`},
		{"/v1/completions", `{"prompt":"hi"}`},
		{"/v1/completions", `{"prompt":[[1,2,3]],"max_tokens":5,"logprobs":2,"echo":true}`},
	} {
		m, set := &chattest.Model{}, testSettings()
		set.Chat.Sampling.Temperature, set.Chat.Reasoning = &temperature, "deepseek_r1"
		s := testServer(m, set)
		rendered := post(s, x.path+"/render", x.body)
		body := rendered.Body.Bytes()
		var list []json.RawMessage
		if json.Unmarshal(body, &list) == nil {
			body = list[0]
		}
		for _, r := range []struct{ path, body string }{{x.path, x.body}, {"/inference/v1/generate", string(body)}} {
			if w := post(s, r.path, r.body); w.Code != 200 {
				t.Errorf("%s %s: %d %s", r.path, r.body, w.Code, w.Body)
			}
		}
		got := m.Requests()
		if len(got) != 2 {
			continue
		}
		if (got[0].Grammar == nil) != (got[1].Grammar == nil) {
			t.Errorf("%s: a grammar is lost", x.body)
		}
		if d := cmp.Diff(got[0], got[1], cmpopts.IgnoreFields(engine.Request{}, "ID", "ReplyID", "Grammar"), cmpopts.IgnoreFields(engine.Thinking{}, "Bytes"), cmpopts.EquateEmpty()); d != "" {
			t.Errorf("%s %s: %s", x.path, x.body, d)
		}
	}
}

// TestBatchDefaults checks that each conversation of a batch is a separate request, with
// the batch's defaults for absent parameters.
func TestBatchDefaults(t *testing.T) {
	m := &chattest.Model{Say: func(r engine.Request, _ int) chattest.Script {
		return chattest.Script{Text: string(rune(r.Prompt[len("[user]")]))}
	}}
	w := post(testServer(m, testSettings()), "/v1/chat/completions/batch",
		`{"messages":[[{"role":"user","content":"a"}],[{"role":"user","content":"b"}],[{"role":"user","content":"c"}]],"top_k":7}`)
	var reply struct {
		Choices []struct {
			Index   int
			Message struct{ Content string }
		}
	}
	if err := json.Unmarshal(w.Body.Bytes(), &reply); err != nil || len(reply.Choices) != 3 {
		t.Fatalf("got %d %s (%v), want 3 choices", w.Code, w.Body, err)
	}
	for i, r := range m.Requests() {
		p, c := r.Params, reply.Choices[i]
		if p.Temperature != 0.7 || p.TopP != 1 || p.TopK != 7 || c.Index != i || c.Message.Content != string(rune('a'+i)) {
			t.Errorf("%d: %+v, %+v", i, c, p)
		}
	}
}

// TestBeamsStream checks that a streamed beam search has the same text as one that is
// not streamed.
func TestBeamsStream(t *testing.T) {
	s := testServer(&chattest.Model{}, testSettings())
	const body = `{"prompt":"x","use_beam_search":true,"n":2,"max_tokens":3`
	var whole struct{ Choices []struct{ Text string } }
	if err := json.Unmarshal(post(s, "/v1/completions", body+"}").Body.Bytes(), &whole); err != nil || len(whole.Choices) != 2 {
		t.Fatalf("got %+v (%v), want 2 choices", whole, err)
	}
	var texts [2]string
	for line := range strings.SplitSeq(post(s, "/v1/completions", body+`,"stream":true}`).Body.String(), "\n\n") {
		var chunk struct {
			Choices []struct {
				Index int
				Text  string
			}
		}
		if data, is := strings.CutPrefix(line, "data: {"); is && json.Unmarshal([]byte("{"+data), &chunk) == nil {
			for _, c := range chunk.Choices {
				texts[c.Index] += c.Text
			}
		}
	}
	if texts[0] != whole.Choices[0].Text || texts[1] != whole.Choices[1].Text || texts[0] == texts[1] || texts[0] == "" {
		t.Errorf("streamed %q, whole %+v", texts, whole)
	}
}
