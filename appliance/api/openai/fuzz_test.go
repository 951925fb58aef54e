package openai

import (
	"encoding/json"
	"errors"
	"testing"
	"unicode/utf8"

	"vapp.dev/appliance/chat"
	"vapp.dev/appliance/chat/chattest"
)

// checkError checks that an error is a *chat.Error, not internal, with a valid body.
func checkError(t *testing.T, err error) {
	t.Helper()
	var e *chat.Error
	if !errors.As(err, &e) {
		t.Fatalf("%v is not a *chat.Error", err)
	}
	var out ErrorBody
	if err := json.Unmarshal(Error(e), &out); err != nil || out.Error.Message == "" || out.Error.Code != Status(e) {
		t.Fatalf("%v: body %s", err, Error(e))
	}
	if e.Kind == chat.Internal {
		t.Fatalf("a body made an internal error: %v", e)
	}
}

// answer runs a decoded request and checks that its reply and stream are JSON.
func answer(t *testing.T, a chat.RequestParams, d interface {
	Reply(*chat.Run, []chat.Reply) []byte
	Stream(*chat.Run) Stream
}) {
	t.Helper()
	set := chattest.Settings()
	set.MaxChoices, set.TrustRequestChatTemplate = 4, true
	set.Vision = &chattest.Vision{Most: map[string]int{"image": 3, "video": 1}}
	if len(a.Prompts) > 8 {
		return
	}
	r, err := chat.NewRequest(a, &set)
	if err != nil {
		checkError(t, err)
		return
	}
	s := chattest.Service(&chattest.Model{})
	run, err := s.Start(t.Context(), r)
	if err != nil {
		checkError(t, err)
		return
	}
	replies, err := run.Wait(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if b := d.Reply(run, replies); !json.Valid(b) || !utf8.Valid(b) {
		t.Fatalf("reply %q", b)
	}
	if run, err = s.Start(t.Context(), r); err != nil {
		t.Fatal(err)
	}
	defer run.Close()
	st := d.Stream(run)
	buf := st.Begin(nil)
	for {
		ds, err := run.Next(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if ds == nil {
			break
		}
		for _, d := range ds {
			buf = st.Add(buf, d)
		}
	}
	if buf = st.End(buf); !utf8.Valid(buf) {
		t.Fatalf("stream %q", buf)
	}
}

func FuzzDecodeChat(f *testing.F) {
	f.Add([]byte(`{"messages":[{"role":"user","content":"hi"}],"stream":true,"stream_options":{"include_usage":true}}`))
	f.Add([]byte(`{"messages":[{"role":"user","content":[{"type":"image_url","image_url":{"url":"data:image/png;base64,abc"}},{"image_url":null,"uuid":"x"},{"type":"video_url","video_url":{"url":"http://x/a"}},"a"]}],"mm_processor_kwargs":{}}`))
	f.Add([]byte(`{"messages":[{"role":"user","content":["a",{"type":"text","text":"b"}]}],"logprobs":true,"top_logprobs":2,"n":2,"stop":["x"]}`))
	f.Add([]byte(`{"messages":[{"role":"assistant","content":null,"tool_calls":[{"id":"1","function":{"name":"f","arguments":"{}"}}]}],"tools":[{"function":{"name":"f"}}],"tool_choice":"none"}`))
	f.Add([]byte(`{"messages":[{"role":"user","content":"x"}],"logit_bias":{"5":1e2},"seed":-1,"prompt_logprobs":1,"truncate_prompt_tokens":3,"echo":true}`))
	f.Add([]byte(`{"messages":[[[[[[`))
	f.Fuzz(func(t *testing.T, b []byte) {
		r, err := DecodeChat(b)
		if err != nil {
			checkError(t, err)
			return
		}
		answer(t, r.Ask, r)
	})
}

func FuzzDecodeCompletion(f *testing.F) {
	f.Add([]byte(`{"prompt":"x","max_tokens":3,"echo":true,"logprobs":1}`))
	f.Add([]byte(`{"prompt":["x","y"],"n":2,"stream":true,"stop":"z"}`))
	f.Add([]byte(`{"prompt":[1,2,3],"max_tokens":0,"echo":true}`))
	f.Add([]byte(`{"prompt":[[1],[2,3]],"bad_words":["a"],"allowed_token_ids":[1],"stop_token_ids":[3],"min_tokens":1}`))
	f.Add([]byte(`{"prompt":[null]}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		r, err := DecodeCompletion(b)
		if err != nil {
			checkError(t, err)
			return
		}
		answer(t, r.Ask, r)
	})
}

func FuzzDecodeGenerate(f *testing.F) {
	f.Add([]byte(`{"token_ids":[1,2],"sampling_params":{"max_tokens":3,"logprobs":1,"stop":["x"],"n":2}}`))
	f.Add([]byte(`{"token_ids":[1],"sampling_params":{"prompt_logprobs":1},"stream":false,"model":"also"}`))
	f.Add([]byte(`{"token_ids":[1],"sampling_params":{},"stream":true,"stream_options":{"include_usage":true}}`))
	f.Add([]byte(`{"token_ids":[null],"sampling_params":[]}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		r, err := DecodeGenerate(b)
		if err != nil {
			checkError(t, err)
			return
		}
		answer(t, r.Ask, r)
	})
}

func FuzzDecodeBatch(f *testing.F) {
	f.Add([]byte(`{"messages":[[{"role":"user","content":"hi"}],[{"role":"user","content":"b"}]],"logprobs":true}`))
	f.Add([]byte(`{"messages":[[{"role":"user","content":"hi"}],{}],"n":1,"tools":[]}`))
	f.Add([]byte(`{"messages":[[]],"stream":true}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		r, err := DecodeBatch(b)
		if err != nil {
			checkError(t, err)
			return
		}
		for _, one := range r.Requests[:min(len(r.Requests), 4)] {
			answer(t, one.Ask, one)
		}
	})
}

func FuzzDecodeTokens(f *testing.F) {
	f.Add([]byte(`{"prompt":"x","add_special_tokens":false,"return_token_strs":true}`))
	f.Add([]byte(`{"messages":[{"role":"user","content":"x"}],"tools":[]}`))
	f.Add([]byte(`{"tokens":[1,2,-1,99999999999]}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		s, set := chattest.Service(&chattest.Model{}), chattest.Settings()
		set.TrustRequestChatTemplate = true
		if a, err := DecodeTokenize(b); err != nil {
			checkError(t, err)
		} else if out, err := s.Tokenize(t.Context(), a, &set); err != nil {
			checkError(t, err)
		} else if !json.Valid(TokenizeReply(out, 1)) {
			t.Fatal("reply")
		}
		if d, err := DecodeDetokenize(b); err != nil {
			checkError(t, err)
		} else if _, err := s.Detokenize(d.Model, d.Tokens, &set); err != nil {
			checkError(t, err)
		}
	})
}

// TestBounds checks that bodies with too many values are refused: they are small to
// send and large to decode.
func TestBounds(t *testing.T) {
	many := func(open, item, end string) string {
		b := []byte(open)
		for range maxItems {
			b = append(b, item...)
			b = append(b, ',')
		}
		return string(append(append(b, item...), end...))
	}
	for _, body := range []string{
		many(`{"messages":[`, `1`, `]}`),
		many(`{"messages":[{"role":"u","content":[`, `""`, `]}]}`),
		many(`{"messages":[{"role":"u"}],"stop":[`, `""`, `]}`),
		many(`{"messages":[{"role":"u"}],"logit_bias":{`, `"1":1`, `}}`),
		many(`{`, `"a":1`, `}`),
	} {
		_, err := DecodeChat([]byte(body))
		if err == nil {
			t.Errorf("%.60s… is accepted", body)
			continue
		}
		checkError(t, err)
	}
}
