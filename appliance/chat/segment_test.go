package chat_test

import (
	"context"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"

	"vapp.dev/appliance/chat"
	"vapp.dev/appliance/chat/chattest"
	"vapp.dev/appliance/chat/dialect"
	"vapp.dev/engine"
)

// allAtOnce is an engine that has all tokens of a text before the first read.
type allAtOnce string

func (text allAtOnce) Submit(_ context.Context, r engine.Request) ([]*engine.Stream, error) {
	st, push := engine.NewStream(r.ID, func() {})
	for _, b := range []byte(text) {
		l := chattest.Logprob(int32(b), 0)
		push(engine.Event{Token: int32(b), Logprob: &l, StopToken: -1})
	}
	l := chattest.Logprob(chattest.EOS, 0)
	push(engine.Event{Token: chattest.EOS, Logprob: &l, Finish: engine.FinishStop, StopToken: -1})
	return []*engine.Stream{st}, nil
}

// heard reads a run and joins its segments as their consumers do.
func heard(t *testing.T, run *chat.Run) ([]chat.Segment, chat.Usage) {
	t.Helper()
	var out []chat.Segment
	for {
		ds, err := run.Next(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if ds == nil {
			return out, run.Usage()
		}
		for _, d := range ds {
			for _, s := range d.Segments {
				if n := len(out); n > 0 && out[n-1].Kind == s.Kind && out[n-1].Call.Index == s.Call.Index {
					out[n-1].Text += s.Text
					out[n-1].Call.Arguments += s.Call.Arguments
					out[n-1].Logprobs = append(out[n-1].Logprobs, s.Logprobs...)
					continue
				}
				out = append(out, s)
			}
		}
	}
}

// TestSegments checks that segments are in order and do not depend on how the tokens are
// batched, that every content token has its logprob, and that reasoning and markup have
// none.
func TestSegments(t *testing.T) {
	one := 0
	for _, c := range []struct {
		name, reasoning, tools, text string
		want                         []string // kind and text of each segment
		thought                      int
		logprobs                     string // of content, their tokens joined
	}{
		{"plain", "", "", "Hello.", []string{"cHello."}, 0, "Hello."},
		{"hermes", "qwen3", "hermes", "hm</think>Ok.<tool_call>{\"name\": \"f\", \"arguments\": {\"x\": 1}}</tool_call>Bye.", []string{"rhm", "cOk.", "tf{\"x\": 1}", "cBye."}, 10, "Ok.Bye."},
		{"two calls", "", "hermes", "<tool_call>{\"name\": \"f\", \"arguments\": {}}</tool_call><tool_call>{\"name\": \"g\", \"arguments\": {}}</tool_call>", []string{"tf{}", "tg{}"}, 0, ""},
		{"harmony", "openai_gptoss", "openai", "<|channel|>analysis<|message|>hm<|end|><|start|>assistant<|channel|>commentary to=functions.f <|constrain|>json<|message|>{\"x\": 1}<|call|>", []string{"rhm", "tf{\"x\": 1}"}, 32, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			set := chattest.Settings()
			set.Reasoning, set.Tools, set.AutoToolChoice = c.reasoning, c.tools, c.tools != ""
			set.NewCallID = func() string { return "id" }
			ask := chat.RequestParams{Chat: talk(), ToolChoice: "auto", Segments: true, Logprobs: &one, SkipSpecialTokens: true, N: 1}
			if c.tools == "" {
				ask.Chat.Tools, ask.ToolChoice = nil, "none"
			}
			model := &chattest.Model{Say: func(engine.Request, int) chattest.Script { return chattest.Script{Text: c.text} }}
			run, err := start(t, chattest.Service(model), ask, set)
			if err != nil {
				t.Fatal(err)
			}
			slow, usage := heard(t, run)
			cfg := chattest.Config(&chattest.Model{})
			cfg.Engine, cfg.ModelLen = allAtOnce(c.text), 1000
			if run, err = start(t, chat.New(cfg), ask, set); err != nil {
				t.Fatal(err)
			}
			fast, same := heard(t, run)
			if !reflect.DeepEqual(slow, fast) || usage != same {
				t.Errorf("token by token %+v, %+v\nat once %+v, %+v", slow, usage, fast, same)
			}
			var got []string
			logprobs := ""
			for _, s := range slow {
				got = append(got, map[dialect.Kind]string{dialect.Reasoning: "r", dialect.Content: "c", dialect.ToolCall: "t"}[s.Kind]+s.Text+s.Call.Name+s.Call.Arguments)
				for _, l := range s.Logprobs {
					logprobs += l.Text
				}
			}
			if !reflect.DeepEqual(got, c.want) || usage.Reasoning != c.thought || logprobs != c.logprobs {
				t.Errorf("said %q, %d tokens of thoughts, logprobs of %q; want %q, %d, %q", got, usage.Reasoning, logprobs, c.want, c.thought, c.logprobs)
			}
		})
	}
}

// TestSegmentsAtRandom makes the same checks with random texts.
func TestSegmentsAtRandom(t *testing.T) {
	r := rand.New(rand.NewPCG(7, 8))
	pieces := []string{"a", " ", "\n", "é", "<think>", "</think>", "<tool_call>", "</tool_call>", `{"name": "f", "arguments": {"x": 1}}`, `{"name": "g", `, "<tool"}
	for range 200 {
		var b strings.Builder
		for range r.IntN(8) {
			b.WriteString(pieces[r.IntN(len(pieces))])
		}
		set := chattest.Settings()
		set.Reasoning, set.Tools, set.AutoToolChoice = "qwen3", "hermes", true
		set.NewCallID = func() string { return "id" }
		none := 0
		ask := chat.RequestParams{Chat: talk(), ToolChoice: "auto", Segments: true, Logprobs: &none, SkipSpecialTokens: true, N: 1, Stop: [][]string{nil, {"ag"}}[r.IntN(2)]}
		text := b.String()
		model := &chattest.Model{Say: func(engine.Request, int) chattest.Script { return chattest.Script{Text: text} }}
		cfg := chattest.Config(model)
		cfg.ModelLen = 1000
		run, err := start(t, chat.New(cfg), ask, set)
		if err != nil {
			t.Fatal(err)
		}
		slow, _ := heard(t, run)
		cfg = chattest.Config(&chattest.Model{})
		cfg.Engine, cfg.ModelLen = allAtOnce(text), 1000
		if run, err = start(t, chat.New(cfg), ask, set); err != nil {
			t.Fatal(err)
		}
		if fast, _ := heard(t, run); !reflect.DeepEqual(slow, fast) {
			t.Fatalf("%q: token by token %+v\nat once %+v", text, slow, fast)
		}
	}
}
