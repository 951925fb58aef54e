//go:build clients

package clients

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"
	"github.com/openai/openai-go/v3/packages/param"
)

var openaiChecks = []check{
	{"chat", openaiChat}, {"stream", openaiStream}, {"turns", openaiTurns}, {"logprobs", openaiLogprobs}, {"stop", openaiStop},
	{"seed-and-n", openaiSeedAndN}, {"completions", openaiCompletions}, {"models", openaiModels}, {"tools", openaiTools},
	{"tools-stream", openaiToolsStream}, {"forced", openaiForced}, {"schema", openaiSchema}, {"responses", openaiResponses}, {"images", openaiImages}, {"errors", openaiErrors},
	{"key", openaiKey}, {"limits", openaiLimits}, {"cancel", openaiCancel},
}

func client() openai.Client { return clientOf(base, "none", 0) }

func clientOf(url, key string, retries int) openai.Client {
	return openai.NewClient(option.WithBaseURL(url+"/v1/"), option.WithAPIKey(key), option.WithMaxRetries(retries))
}

// ask returns a greedy chat request with one question.
func ask(question string) openai.ChatCompletionNewParams {
	return openai.ChatCompletionNewParams{
		Model:       modelName,
		Messages:    []openai.ChatCompletionMessageParamUnion{openai.UserMessage(question)},
		Temperature: openai.Float(0),
		MaxTokens:   openai.Int(40),
	}
}

func chat(t *testing.T, p openai.ChatCompletionNewParams) *openai.ChatCompletion {
	t.Helper()
	c := client()
	r, err := c.Chat.Completions.New(context.Background(), p)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func openaiChat(t *testing.T) {
	r := chat(t, ask(paris))
	m := r.Choices[0]
	if !strings.Contains(m.Message.Content, "Paris") || m.FinishReason != "stop" || m.Message.Role != "assistant" {
		t.Errorf("%+v", m)
	}
	u := r.Usage
	if u.PromptTokens == 0 || u.CompletionTokens == 0 || u.TotalTokens != u.PromptTokens+u.CompletionTokens {
		t.Errorf("usage %+v", u)
	}
	if r.Model != modelName || r.Object != "chat.completion" || !strings.HasPrefix(r.ID, "chatcmpl-") {
		t.Errorf("%s %s %s", r.Model, r.Object, r.ID)
	}
}

// openaiStream checks that a stream gives the same text as the reply that is not streamed.
func openaiStream(t *testing.T) {
	p := ask(moon)
	plain := chat(t, p)
	p.StreamOptions = openai.ChatCompletionStreamOptionsParam{IncludeUsage: openai.Bool(true)}
	c := client()
	s := c.Chat.Completions.NewStreaming(context.Background(), p)
	acc := openai.ChatCompletionAccumulator{}
	chunks := 0
	for s.Next() {
		if !acc.AddChunk(s.Current()) {
			t.Fatal("the accumulator refuses a chunk")
		}
		chunks++
	}
	if err := s.Err(); err != nil {
		t.Fatal(err)
	}
	if got, want := acc.Choices[0].Message.Content, plain.Choices[0].Message.Content; got != want {
		t.Errorf("streamed %q, plain %q", got, want)
	}
	if acc.Choices[0].FinishReason != plain.Choices[0].FinishReason || acc.Usage.TotalTokens != plain.Usage.TotalTokens {
		t.Errorf("streamed %+v %+v, plain %+v %+v", acc.Choices[0].FinishReason, acc.Usage, plain.Choices[0].FinishReason, plain.Usage)
	}
	if chunks < 10 {
		t.Errorf("only %d chunks", chunks)
	}
}

func openaiLogprobs(t *testing.T) {
	p := ask("Name a colour.")
	p.Logprobs, p.TopLogprobs = openai.Bool(true), openai.Int(3)
	r := chat(t, p)
	text := ""
	for _, l := range r.Choices[0].Logprobs.Content {
		text += l.Token
		if len(l.TopLogprobs) != 3 || l.Logprob > 0 || l.Logprob > l.TopLogprobs[0].Logprob+1e-6 {
			t.Errorf("%+v", l)
		}
		if l.Token != l.TopLogprobs[0].Token {
			t.Errorf("greedy chose %q, the likeliest is %q", l.Token, l.TopLogprobs[0].Token)
		}
	}
	if !strings.HasPrefix(text, r.Choices[0].Message.Content) {
		t.Errorf("tokens %q, content %q", text, r.Choices[0].Message.Content)
	}
}

func openaiStop(t *testing.T) {
	p := ask(moon)
	whole := chat(t, p).Choices[0].Message.Content
	if len(whole) < 20 {
		t.Fatalf("too short to cut: %q", whole)
	}
	stop := whole[10:14]
	p.Stop = openai.ChatCompletionNewParamsStopUnion{OfStringArray: []string{stop}}
	got := chat(t, p).Choices[0]
	if want := whole[:strings.Index(whole, stop)]; got.Message.Content != want || got.FinishReason != "stop" {
		t.Errorf("%q (%s), want %q", got.Message.Content, got.FinishReason, want)
	}
}

// openaiSeedAndN checks that a seed reproduces the choices, and that the choices differ.
func openaiSeedAndN(t *testing.T) {
	p := ask("Write a line of a poem.")
	p.Temperature, p.Seed, p.N = openai.Float(1.2), openai.Int(42), openai.Int(3)
	a, b := chat(t, p), chat(t, p)
	if len(a.Choices) != 3 {
		t.Fatalf("%d choices", len(a.Choices))
	}
	for i := range a.Choices {
		if x, y := a.Choices[i].Message.Content, b.Choices[i].Message.Content; x != y {
			t.Errorf("choice %d: %q, then %q", i, x, y)
		}
	}
	if a.Choices[0].Message.Content == a.Choices[1].Message.Content {
		t.Error("two choices are equal")
	}
	p.Seed = openai.Int(43)
	if c := chat(t, p); c.Choices[0].Message.Content == a.Choices[0].Message.Content {
		t.Error("another seed gives the same text")
	}
}

func openaiCompletions(t *testing.T) {
	p := openai.CompletionNewParams{
		Model:       modelName,
		Prompt:      openai.CompletionNewParamsPromptUnion{OfArrayOfStrings: []string{"Once upon a time", "The sun is"}},
		MaxTokens:   openai.Int(16),
		Temperature: openai.Float(0),
		Logprobs:    openai.Int(2),
	}
	c := client()
	r, err := c.Completions.New(context.Background(), p)
	if err != nil {
		t.Fatal(err)
	}
	if len(r.Choices) != 2 || r.Usage.CompletionTokens != 32 {
		t.Fatalf("%d choices, usage %+v", len(r.Choices), r.Usage)
	}
	for i, ch := range r.Choices {
		if int(ch.Index) != i || ch.FinishReason != "length" || len(ch.Logprobs.Tokens) != 16 || strings.Join(ch.Logprobs.Tokens, "") != ch.Text {
			t.Errorf("choice %d: %+v", i, ch)
		}
	}
	s := c.Completions.NewStreaming(context.Background(), p)
	texts := map[int64]string{}
	for s.Next() {
		for _, ch := range s.Current().Choices {
			texts[ch.Index] += ch.Text
		}
	}
	if err := s.Err(); err != nil {
		t.Fatal(err)
	}
	for i, ch := range r.Choices {
		if texts[int64(i)] != ch.Text {
			t.Errorf("choice %d streamed %q, plain %q", i, texts[int64(i)], ch.Text)
		}
	}
}

func openaiModels(t *testing.T) {
	c := client()
	page, err := c.Models.List(context.Background())
	if err != nil || len(page.Data) != 1 || page.Data[0].ID != modelName {
		t.Errorf("%+v: %v", page, err)
	}
}

// openaiErrors checks that the client recognizes the server's errors.
func openaiErrors(t *testing.T) {
	p := ask("x")
	p.Model = "nobody"
	c := client()
	_, err := c.Chat.Completions.New(context.Background(), p)
	var e *openai.Error
	if !errors.As(err, &e) || e.StatusCode != 404 || e.Type != "NotFoundError" {
		t.Errorf("unknown model: %v", err)
	}
	p = ask("x")
	p.TopP = param.NewOpt(2.0)
	if _, err = c.Chat.Completions.New(context.Background(), p); !errors.As(err, &e) || e.StatusCode != 400 || !strings.Contains(e.Message, "top_p") {
		t.Errorf("top_p 2: %v", err)
	}
	p = ask(strings.Repeat("word ", 5000))
	if _, err = c.Chat.Completions.New(context.Background(), p); !errors.As(err, &e) || e.StatusCode != 400 || !strings.Contains(e.Message, "4096") {
		t.Errorf("too long: %v", err)
	}
}
