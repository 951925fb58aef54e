//go:build clients

package clients

import (
	"context"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/anthropics/anthropic-sdk-go"
	"github.com/anthropics/anthropic-sdk-go/option"
)

var anthropicChecks = []check{
	{"chat", messageChat}, {"stream", messageStream}, {"turns", messageTurns}, {"stop", messageStop}, {"models", messageModels},
	{"token-counting", messageCount}, {"tools", messageTools}, {"tools-stream", messageToolsStream}, {"forced", messageForced}, {"schema", messageSchema}, {"images", messageImages},
	{"errors", messageErrors}, {"key", messageKey}, {"limits", messageLimits}, {"cancel", messageCancel},
}

func anthropicClient(url, key string, retries int) anthropic.Client {
	return anthropic.NewClient(option.WithBaseURL(url), option.WithAPIKey(key), option.WithMaxRetries(retries))
}

// question returns a request without temperature: the server's profile sets 0.
func question(q string) anthropic.MessageNewParams {
	return anthropic.MessageNewParams{
		Model: modelName, MaxTokens: 40, Messages: []anthropic.MessageParam{anthropic.NewUserMessage(anthropic.NewTextBlock(q))},
	}
}

func message(t *testing.T, p anthropic.MessageNewParams) *anthropic.Message {
	t.Helper()
	c := anthropicClient(base, "none", 0)
	m, err := c.Messages.New(context.Background(), p)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// events joins the events of a stream.
func events(t *testing.T, p anthropic.MessageNewParams) (*anthropic.Message, []string) {
	t.Helper()
	c := anthropicClient(base, "none", 0)
	s, m := c.Messages.NewStreaming(context.Background(), p), anthropic.Message{}
	var kinds []string
	for s.Next() {
		kinds = append(kinds, s.Current().Type)
		if err := m.Accumulate(s.Current()); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Err(); err != nil {
		t.Fatal(err)
	}
	return &m, kinds
}

func messageChat(t *testing.T) {
	m := message(t, question(paris))
	if len(m.Content) != 1 || !strings.Contains(m.Content[0].Text, "Paris") || m.StopReason != "end_turn" || m.Model != modelName {
		t.Errorf("%+v", m)
	}
	if m.Usage.InputTokens == 0 || m.Usage.OutputTokens == 0 {
		t.Errorf("usage %+v", m.Usage)
	}
}

func messageStream(t *testing.T) {
	plain := message(t, question(moon))
	m, kinds := events(t, question(moon))
	if len(m.Content) != 1 || m.Content[0].Text != plain.Content[0].Text || m.StopReason != plain.StopReason {
		t.Errorf("streamed %+v, plain %+v", m, plain)
	}
	if m.Usage.OutputTokens != plain.Usage.OutputTokens || m.Usage.InputTokens != plain.Usage.InputTokens {
		t.Errorf("streamed %+v, plain %+v", m.Usage, plain.Usage)
	}
	if !slices.Equal(kinds[:2], []string{"message_start", "content_block_start"}) || kinds[len(kinds)-1] != "message_stop" {
		t.Errorf("%v", kinds)
	}
}

func messageTurns(t *testing.T) {
	p := question(paris)
	p.System = []anthropic.TextBlockParam{{Text: "You are terse."}}
	first := message(t, p)
	p.Messages = append(p.Messages, first.ToParam(), anthropic.NewUserMessage(anthropic.NewTextBlock(moon)))
	second := message(t, p)
	if second.Content[0].Text == "" || second.Usage.InputTokens <= first.Usage.InputTokens+first.Usage.OutputTokens {
		t.Errorf("%+v, after %+v", second.Usage, first.Usage)
	}
}

func messageStop(t *testing.T) {
	p := question(moon)
	whole := message(t, p).Content[0].Text
	stop := whole[10:14]
	p.StopSequences = []string{stop}
	if m := message(t, p); m.Content[0].Text != whole[:strings.Index(whole, stop)] || m.StopReason != "stop_sequence" || m.StopSequence != stop {
		t.Errorf("%+v", m)
	}
}

func messageModels(t *testing.T) {
	c := anthropicClient(base, "none", 0)
	page, err := c.Models.List(context.Background(), anthropic.ModelListParams{})
	if err != nil || len(page.Data) != 1 || page.Data[0].ID != modelName {
		t.Errorf("%+v: %v", page, err)
	}
}

func messageCount(t *testing.T) {
	c := anthropicClient(base, "none", 0)
	p := question(paris)
	n, err := c.Messages.CountTokens(context.Background(), anthropic.MessageCountTokensParams{Model: modelName, Messages: p.Messages})
	if err != nil {
		t.Fatal(err)
	}
	if m := message(t, p); n.InputTokens != m.Usage.InputTokens {
		t.Errorf("counted %d, used %d", n.InputTokens, m.Usage.InputTokens)
	}
}

// messageTool returns a tool in Anthropic's form.
func messageTool(name string, parameters map[string]any) anthropic.ToolUnionParam {
	return anthropic.ToolUnionParam{OfTool: &anthropic.ToolParam{
		Name: name, Description: anthropic.String("The weather in a city."),
		InputSchema: anthropic.ToolInputSchemaParam{
			Properties: parameters["properties"], Required: parameters["required"].([]string),
			ExtraFields: map[string]any{"additionalProperties": false},
		},
	}}
}

// use returns the single call of a message.
func use(t *testing.T, m *anthropic.Message) anthropic.ContentBlockUnion {
	t.Helper()
	i := slices.IndexFunc(m.Content, func(b anthropic.ContentBlockUnion) bool { return b.Type == "tool_use" })
	if i < 0 || m.StopReason != "tool_use" || m.Content[i].ID == "" {
		t.Fatalf("%+v", m)
	}
	return m.Content[i]
}

func messageTools(t *testing.T) {
	p := question(call)
	p.Tools = []anthropic.ToolUnionParam{messageTool("weather", weather)}
	m := message(t, p)
	u := use(t, m)
	isCall(t, string(u.Input))
	p.Messages = append(p.Messages, m.ToParam(), anthropic.NewUserMessage(anthropic.NewToolResultBlock(u.ID, "sunny, 21 degrees", false)))
	p.ToolChoice = anthropic.ToolChoiceUnionParam{OfNone: &anthropic.ToolChoiceNoneParam{}}
	if m = message(t, p); m.Content[0].Type != "text" || m.StopReason == "tool_use" {
		t.Errorf("%+v", m)
	}
}

func messageToolsStream(t *testing.T) {
	p := question(call)
	p.Tools = []anthropic.ToolUnionParam{messageTool("weather", weather)}
	m, _ := events(t, p)
	u := use(t, m)
	isCall(t, string(u.Input))
}

func messageForced(t *testing.T) {
	p := question(paris)
	p.Tools = []anthropic.ToolUnionParam{messageTool("forecast", forecast)}
	for _, choice := range []anthropic.ToolChoiceUnionParam{anthropic.ToolChoiceParamOfTool("forecast"), {OfAny: &anthropic.ToolChoiceAnyParam{}}} {
		p.ToolChoice = choice
		plain := use(t, message(t, p))
		isForecast(t, string(plain.Input))
		m, _ := events(t, p)
		isForecast(t, string(use(t, m).Input))
	}
}

func messageSchema(t *testing.T) {
	p := question(paris)
	p.OutputConfig.Format = anthropic.JSONOutputFormatParam{Schema: forecast}
	isForecast(t, message(t, p).Content[0].Text)
	m, _ := events(t, p)
	isForecast(t, m.Content[0].Text)
}

func messageErrors(t *testing.T) {
	c := anthropicClient(base, "none", 0)
	p := question("x")
	p.Model = "nobody"
	_, err := c.Messages.New(context.Background(), p)
	if e := refused[*anthropic.Error](t, err); e.StatusCode != http.StatusNotFound || e.Type() != anthropic.ErrorTypeNotFoundError || e.RequestID == "" {
		t.Errorf("%v", e)
	}
	_, err = c.Messages.New(context.Background(), question(strings.Repeat("word ", 5000)))
	if e := refused[*anthropic.Error](t, err); e.StatusCode != http.StatusBadRequest || e.Type() != anthropic.ErrorTypeInvalidRequestError {
		t.Errorf("%v", e)
	}
}

func messageKey(t *testing.T) {
	c := anthropicClient(guarded.url, "wrong", 0)
	_, err := c.Messages.New(context.Background(), question("x"))
	if e := refused[*anthropic.Error](t, err); e.StatusCode != http.StatusUnauthorized {
		t.Errorf("%v", e)
	}
	c = anthropicClient(guarded.url, "anthropic-go", 0)
	if _, err := c.Messages.New(context.Background(), question("x")); err != nil {
		t.Error(err)
	}
}

func messageLimits(t *testing.T) {
	one := func(retries int) error {
		p := question("x")
		p.MaxTokens = 1
		c := anthropicClient(guarded.url, "anthropic-go", retries)
		_, err := c.Messages.New(context.Background(), p)
		return err
	}
	var err error
	for range 200 {
		if err = one(0); err != nil {
			break
		}
	}
	e := refused[*anthropic.Error](t, err)
	after, bad := strconv.Atoi(e.Response.Header.Get("Retry-After"))
	if e.Type() != anthropic.ErrorTypeRateLimitError || bad != nil || after < 1 || after > 60 {
		t.Errorf("%v, Retry-After %d (%v)", e, after, bad)
	}
	if err := one(5); err != nil {
		t.Error(err)
	}
}

func messageCancel(t *testing.T) {
	before := aborts(t)
	p := question(endless)
	p.MaxTokens = 3000
	p.OutputConfig.Format = anthropic.JSONOutputFormatParam{Schema: longList}
	c := anthropicClient(base, "none", 0)
	s := c.Messages.NewStreaming(context.Background(), p)
	for range 4 {
		if !s.Next() {
			t.Fatal(s.Err())
		}
	}
	s.Close()
	waitAborted(t, before)
	cancelRunning(t, func(ctx context.Context) error {
		_, err := c.Messages.New(ctx, p)
		return err
	})
	waitAborted(t, before+1)
}
