//go:build clients

package clients

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"strconv"
	"testing"

	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"
	"github.com/openai/openai-go/v3/shared"
)

// tool returns a function in OpenAI's form.
func tool(name string, parameters map[string]any) openai.ChatCompletionToolUnionParam {
	return openai.ChatCompletionFunctionTool(shared.FunctionDefinitionParam{
		Name: name, Description: openai.String("The weather in a city."), Parameters: parameters,
	})
}

func openaiTurns(t *testing.T) {
	p := ask(paris)
	p.Messages = append([]openai.ChatCompletionMessageParamUnion{openai.SystemMessage("You are terse.")}, p.Messages...)
	first := chat(t, p)
	p.Messages = append(p.Messages, first.Choices[0].Message.ToParam(),
		openai.UserMessage([]openai.ChatCompletionContentPartUnionParam{openai.TextContentPart(moon)}))
	second := chat(t, p)
	if second.Choices[0].Message.Content == "" || second.Usage.PromptTokens <= first.Usage.TotalTokens {
		t.Errorf("%+v, after %+v", second.Usage, first.Usage)
	}
}

func openaiTools(t *testing.T) {
	p := ask(call)
	p.Tools = []openai.ChatCompletionToolUnionParam{tool("weather", weather)}
	c := chat(t, p).Choices[0]
	if c.FinishReason != "tool_calls" || len(c.Message.ToolCalls) != 1 || c.Message.ToolCalls[0].Function.Name != "weather" {
		t.Fatalf("%+v", c)
	}
	isCall(t, c.Message.ToolCalls[0].Function.Arguments)
	p.Messages = append(p.Messages, c.Message.ToParam(), openai.ToolMessage("sunny, 21 degrees", c.Message.ToolCalls[0].ID))
	p.ToolChoice.OfAuto = openai.String("none")
	if c = chat(t, p).Choices[0]; c.Message.Content == "" || len(c.Message.ToolCalls) != 0 {
		t.Errorf("%+v", c)
	}
}

// joinStream joins the chunks of a stream.
func joinStream(t *testing.T, p openai.ChatCompletionNewParams) openai.ChatCompletionChoice {
	t.Helper()
	c := client()
	s := c.Chat.Completions.NewStreaming(context.Background(), p)
	acc := openai.ChatCompletionAccumulator{}
	for s.Next() {
		if !acc.AddChunk(s.Current()) {
			t.Fatal("the accumulator refuses a chunk")
		}
	}
	if err := s.Err(); err != nil {
		t.Fatal(err)
	}
	return acc.Choices[0]
}

func openaiToolsStream(t *testing.T) {
	p := ask(call)
	p.Tools = []openai.ChatCompletionToolUnionParam{tool("weather", weather)}
	plain, got := chat(t, p).Choices[0], joinStream(t, p)
	if got.FinishReason != "tool_calls" || len(got.Message.ToolCalls) != 1 || got.Message.Content != plain.Message.Content {
		t.Fatalf("streamed %+v, plain %+v", got, plain)
	}
	if a, b := got.Message.ToolCalls[0], plain.Message.ToolCalls[0]; a.ID == "" || a.Function.Name != b.Function.Name || a.Function.Arguments != b.Function.Arguments {
		t.Errorf("streamed %+v, plain %+v", a, b)
	}
}

func openaiForced(t *testing.T) {
	p := ask(paris)
	p.Tools = []openai.ChatCompletionToolUnionParam{tool("forecast", forecast)}
	required := openai.ChatCompletionToolChoiceOptionUnionParam{OfAuto: openai.String("required")}
	named := openai.ToolChoiceOptionFunctionToolChoice(openai.ChatCompletionNamedToolChoiceFunctionParam{Name: "forecast"})
	for want, choice := range map[string]openai.ChatCompletionToolChoiceOptionUnionParam{"tool_calls": required, "stop": named} {
		p.ToolChoice = choice
		plain, got := chat(t, p).Choices[0], joinStream(t, p)
		for _, c := range []openai.ChatCompletionChoice{plain, got} {
			if c.FinishReason != want || len(c.Message.ToolCalls) == 0 || c.Message.ToolCalls[0].Function.Name != "forecast" {
				t.Fatalf("%s: %+v", want, c)
			}
			isForecast(t, c.Message.ToolCalls[0].Function.Arguments)
		}
		if a, b := got.Message.ToolCalls[0].Function.Arguments, plain.Message.ToolCalls[0].Function.Arguments; a != b {
			t.Errorf("streamed %s, plain %s", a, b)
		}
	}
}

func openaiSchema(t *testing.T) {
	p := ask(paris)
	p.ResponseFormat.OfJSONSchema = &shared.ResponseFormatJSONSchemaParam{
		JSONSchema: shared.ResponseFormatJSONSchemaJSONSchemaParam{Name: "forecast", Strict: openai.Bool(true), Schema: forecast},
	}
	isForecast(t, chat(t, p).Choices[0].Message.Content)
	isForecast(t, joinStream(t, p).Message.Content)
	p.ResponseFormat.OfJSONSchema.JSONSchema.Schema = json.RawMessage(`{"type": "nothing"}`)
	c := client()
	_, err := c.Chat.Completions.New(context.Background(), p)
	if e := refused[*openai.Error](t, err); e.StatusCode != http.StatusBadRequest {
		t.Errorf("%d: %s", e.StatusCode, e.Message)
	}
}

// refused returns the client's error type.
func refused[E error](t *testing.T, err error) E {
	t.Helper()
	var e E
	if !errors.As(err, &e) {
		t.Fatalf("no error of the client: %v", err)
	}
	return e
}

// openaiKey checks the response itself, since this client does not parse
// {"error":"Unauthorized"}, the body that vLLM sends.
func openaiKey(t *testing.T) {
	c := clientOf(guarded.url, "wrong", 0)
	var r *http.Response
	if _, err := c.Models.List(context.Background(), option.WithResponseInto(&r)); err == nil || r == nil || r.StatusCode != http.StatusUnauthorized {
		t.Errorf("%v: %v", r, err)
	}
	c = clientOf(guarded.url, "openai-go", 0)
	if _, err := c.Models.List(context.Background()); err != nil {
		t.Error(err)
	}
}

func openaiLimits(t *testing.T) {
	one := func(retries int) error {
		p := ask("x")
		p.MaxTokens = openai.Int(1)
		c := clientOf(guarded.url, "openai-go", retries)
		_, err := c.Chat.Completions.New(context.Background(), p)
		return err
	}
	var err error
	for range 200 {
		if err = one(0); err != nil {
			break
		}
	}
	e := refused[*openai.Error](t, err)
	after, bad := strconv.Atoi(e.Response.Header.Get("Retry-After"))
	if e.StatusCode != http.StatusTooManyRequests || bad != nil || after < 1 || after > 60 {
		t.Errorf("%d, Retry-After %d (%v)", e.StatusCode, after, bad)
	}
	if err := one(5); err != nil {
		t.Error(err)
	}
}

func openaiCancel(t *testing.T) {
	before := aborts(t)
	p := ask(endless)
	p.MaxTokens = openai.Int(3000)
	p.SetExtraFields(map[string]any{"ignore_eos": true})
	c := client()
	s := c.Chat.Completions.NewStreaming(context.Background(), p)
	for range 4 {
		if !s.Next() {
			t.Fatal(s.Err())
		}
	}
	s.Close()
	waitAborted(t, before)
	cancelRunning(t, func(ctx context.Context) error {
		_, err := c.Chat.Completions.New(ctx, p)
		return err
	})
	waitAborted(t, before+1)
}
