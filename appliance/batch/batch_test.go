package batch

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"vapp.dev/appliance/chat"
	"vapp.dev/appliance/chat/chattest"
	"vapp.dev/engine"
)

// parrot returns a model whose reply to a prompt's text is given by say.
func parrot(say func(prompt string) chattest.Script) *chattest.Model {
	return &chattest.Model{Say: func(r engine.Request, _ int) chattest.Script {
		var b []byte
		for _, t := range r.Prompt[1:] { // without the token that the tokenizer adds
			b = append(b, byte(t))
		}
		return say(string(b))
	}}
}

func runner(m *chattest.Model) Runner {
	return Runner{Service: chattest.Service(m), Settings: new(chattest.Settings()), Slots: 3}
}

// long returns a runner of a model with a huge context, whose endless replies do not end.
func long(m *chattest.Model) Runner {
	r, c := runner(m), chattest.Config(m)
	c.ModelLen = 2_000_000_000
	r.Service = chat.New(c)
	return r
}

// results returns the results that All yields.
func results(t *testing.T, r Runner, ctx context.Context, items []Item) ([]Result, error) {
	t.Helper()
	var out []Result
	err := r.All(ctx, items, func(res Result) error { out = append(out, res); return nil })
	return out, err
}

func TestOrder(t *testing.T) {
	m := parrot(func(p string) chattest.Script { return chattest.Script{Text: strings.Repeat("x", 50-len(p))} })
	var text strings.Builder
	for i := range 40 {
		fmt.Fprintln(&text, strings.Repeat("p", i+1))
	}
	got, err := results(t, runner(m), t.Context(), Form{Raw: true}.Lines([]byte(text.String())))
	if err != nil || len(got) != 40 {
		t.Fatalf("%d results, %v", len(got), err)
	}
	for i, r := range got {
		if r.Err != nil || len(r.Replies[0].Text) != 49-i || r.Item.Prompt != strings.Repeat("p", i+1) {
			t.Errorf("result %d: prompt %q, %v, reply %q", i, r.Item.Prompt, r.Err, r.Replies[0].Text)
		}
	}
}

// TestBegun checks that prompts reach the engine in their order.
func TestBegun(t *testing.T) {
	m := parrot(func(string) chattest.Script { return chattest.Script{Text: "x"} })
	var text strings.Builder
	for i := range 200 {
		fmt.Fprintln(&text, strings.Repeat("p", i+1))
	}
	if _, err := results(t, runner(m), t.Context(), Form{Raw: true}.Lines([]byte(text.String()))); err != nil {
		t.Fatal(err)
	}
	for i, r := range m.Requests() {
		if len(r.Prompt) != i+2 { // the tokenizer adds one
			t.Fatalf("request %d has %d tokens, want %d", i, len(r.Prompt), i+2)
		}
	}
}

// TestOthersGoOn checks that a prompt whose generation fails does not stop the others.
func TestOthersGoOn(t *testing.T) {
	m := parrot(func(p string) chattest.Script {
		if p == "bad" {
			return chattest.Script{Text: "half", Finish: engine.FinishError, Err: errors.New("NaN logits")}
		}
		return chattest.Script{Text: "fine"}
	})
	got, err := results(t, runner(m), t.Context(), Form{Raw: true}.Lines([]byte("a\nbad\nb\n")))
	if err != nil || len(got) != 3 {
		t.Fatalf("%d results, %v", len(got), err)
	}
	if got[0].Err != nil || got[2].Err != nil || got[1].Err == nil || got[1].Interrupted() {
		t.Fatalf("errors %v, %v, %v", got[0].Err, got[1].Err, got[2].Err)
	}
	if line := string(got[1].Lines(1)); !strings.Contains(line, "NaN logits") || !strings.Contains(line, `"line":2`) {
		t.Errorf("the reason is lost: %s", line)
	}
}

// TestInterrupted checks that after an interrupt All yields the partial results of started
// prompts only.
func TestInterrupted(t *testing.T) {
	m := parrot(func(p string) chattest.Script {
		return chattest.Script{Text: "word ", Endless: p != "a"}
	})
	ctx, cancel := context.WithCancel(t.Context())
	var got []Result
	form := Form{Raw: true, Params: map[string]any{"max_tokens": 1_000_000_000}}
	err := long(m).All(ctx, form.Lines([]byte("a\n"+strings.Repeat("b\n", 30))), func(r Result) error {
		got = append(got, r)
		cancel()
		return nil
	})
	if !errors.Is(err, context.Canceled) || len(got) == 0 || len(got) > 31 || got[0].Err != nil {
		t.Fatalf("%v, %d results", err, len(got))
	}
	for i, r := range got[1:] {
		if r.Interrupted() && !strings.Contains(string(r.Lines(i)), `"finish_reason":"abort"`) {
			t.Errorf("%s", r.Lines(i))
		}
	}
}

// TestInterruption checks that a reply which the engine aborted for a cancelled context counts as
// interrupted, even when its last event arrived before the context was looked at.
func TestInterruption(t *testing.T) {
	cancelled, cancel := context.WithCancel(t.Context())
	cancel()
	failed := errors.New("failed")
	for _, c := range []struct {
		ctx    context.Context
		finish string
		err    error
		want   error
	}{
		{cancelled, "abort", nil, context.Canceled},
		{cancelled, "stop", nil, nil},
		{t.Context(), "abort", nil, nil}, // a deadline of the engine, for example
		{t.Context(), "", failed, failed},
	} {
		replies := make([]chat.Reply, 2)
		replies[0].Finish, replies[1].Finish = "length", c.finish
		if got := interruption(c.ctx, replies, c.err); !errors.Is(got, c.want) {
			t.Errorf("%q, context %v: got %v, want %v", c.finish, c.ctx.Err(), got, c.want)
		}
	}
}

// TestYieldFails checks that All stops when a result cannot be written.
func TestYieldFails(t *testing.T) {
	full := errors.New("disk full")
	m := parrot(func(string) chattest.Script { return chattest.Script{Text: "x", Endless: true} })
	err := runner(m).All(t.Context(), Form{Raw: true, Params: map[string]any{"max_tokens": 3}}.Lines([]byte(strings.Repeat("a\n", 50))), func(Result) error { return full })
	if err != full {
		t.Fatalf("%v", err)
	}
}

// TestReasoning checks that a line has reasoning and text separately if the settings name
// a reasoning parser.
func TestReasoning(t *testing.T) {
	r := runner(parrot(func(string) chattest.Script { return chattest.Script{Text: "hm</think>yes"} }))
	r.Settings.Reasoning = "deepseek_r1"
	line := string(r.Answer(t.Context(), Form{}.Text("well?")).Lines(0))
	if !strings.Contains(line, `"reasoning":"hm","text":"yes"`) {
		t.Errorf("%s", line)
	}
}

func TestLines(t *testing.T) {
	form := Form{System: "Be brief.", Params: map[string]any{"max_tokens": 9, "temperature": 0.5}}
	for line, want := range map[string]string{
		`{"prompt":"hi"}`:                               ``,
		`{"prompt":"hi","max_tokens":3}`:                ``,
		`{"messages":[{"role":"user","content":"hi"}]}`: ``,
		`[]`:                             `not a JSON object`,
		`null`:                           `not a JSON object`,
		`{}`:                             "either `prompt` or `messages`",
		`{"prompt":"a","messages":[]}`:   "either `prompt` or `messages`",
		`{"prompt":7}`:                   "must be a string",
		`{"prompt":null}`:                "must be a string",
		`{"prompt":[1,2]}`:               "must be a string",
		`{"messages":{}}`:                "`messages` must be an array",
		`{"prompt":"a","stream":true}`:   "`stream` is not available",
		`{"prompt":"a","logprobs":true}`: "whole reply",
		`{"prompt":"a","temprature":1}`:  "unknown field: temprature",
		`{"custom_id":4,"prompt":"a"}`:   "`custom_id` must be a string",
		`{"url":"/v1/rerank","body":{}}`: "`url` must be",
		`{"method":"GET","url":"/v1/completions","body":{"prompt":"a"}}`: "`method` must be POST",
		`{"url":"/v1/completions","body":{"prompt":"a","stream":true}}`:  "`stream` is not available",
		`{"url":"/v1/completions","body":[]}`:                            "must be a JSON object",
		`{"url":"/v1/completions"}`:                                      "JSON",
	} {
		items := form.JSONL([]byte("\n" + line + "\r\n"))
		if len(items) != 1 || items[0].line != 2 {
			t.Errorf("%s: %+v", line, items)
			continue
		}
		got := ""
		if items[0].err != nil {
			got = items[0].err.Error()
		}
		if (want == "") != (got == "") || !strings.Contains(got, want) {
			t.Errorf("%s: %q, want %q", line, got, want)
		}
	}
	a := form.JSONL([]byte(`{"prompt":"hi","max_tokens":3}`))[0].ask
	if *a.MaxTokens != 3 || *a.Temperature != 0.5 || len(a.Chat.Messages) != 2 || a.Chat.Messages[0].Text != "Be brief." || a.Chat.Messages[1].Text != "hi" {
		t.Errorf("the line, else the flags: %+v", a)
	}
	own := form.JSONL([]byte(`{"messages":[{"role":"system","content":"mine"},{"role":"user","content":"hi"}]}`))[0].ask
	if len(own.Chat.Messages) != 2 || own.Chat.Messages[0].Text != "mine" {
		t.Errorf("a system message of its own counts: %+v", own.Chat.Messages)
	}
	if r := (Form{Raw: true}).Text("hi"); r.ask.MaxTokens != nil || r.ask.Prompts[0].Text != "hi" {
		t.Errorf("a raw prompt: %+v", r.ask)
	}
	if b := form.JSONL([]byte(`{"url":"/v1/completions","body":{"prompt":"hi","temperature":1}}`))[0].ask; *b.MaxTokens != 9 || *b.Temperature != 1 {
		t.Errorf("OpenAI's form: %+v", b)
	}
}

// FuzzJSONL checks that every line becomes one item, and its result valid JSON lines.
func FuzzJSONL(f *testing.F) {
	for _, s := range []string{
		`{"prompt":"hi","n":2}`, `{"messages":[{"role":"user","content":[{"type":"text","text":"x"}]}]}`, `[[[[`,
		`{"custom_id":"a","method":"POST","url":"/v1/completions","body":{"prompt":["a","b"]}}`, "{}\n\n\x00", `{"body":null}`,
	} {
		f.Add(s, false)
		f.Add(s, true)
	}
	run := runner(parrot(func(string) chattest.Script { return chattest.Script{Text: "ok"} }))
	f.Fuzz(func(t *testing.T, text string, raw bool) {
		items := Form{Raw: raw, System: "s", Params: map[string]any{"max_tokens": 2, "stop": []string{"q"}}}.JSONL([]byte(text))
		if len(items) > 20 {
			return
		}
		for i, it := range items {
			if (it.ask == nil) == (it.err == nil) && it.err == nil {
				t.Fatalf("item %d is neither a request nor an error", i)
			}
			if it.err == nil && (it.ask.N > 8 || len(it.ask.Prompts) > 8) {
				continue
			}
			for _, line := range strings.Split(strings.TrimSuffix(string(run.Answer(context.Background(), it).Lines(i)), "\n"), "\n") {
				var v map[string]any
				if err := json.Unmarshal([]byte(line), &v); err != nil {
					t.Fatalf("%v: %q", err, line)
				}
			}
		}
	})
}

var _ Starter = (*chat.Service)(nil)
