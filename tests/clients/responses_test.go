//go:build clients

package clients

import (
	"context"
	"errors"
	"os"
	"strings"
	"testing"

	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/packages/param"
	"github.com/openai/openai-go/v3/packages/ssestream"
	"github.com/openai/openai-go/v3/responses"
)

// storingText is the profile of a server that stores responses.
const storingText = memory + `
	sampling: temperature: 0
	parsers: {toolCall: "hermes", autoToolChoice: true, chatTemplate: %q}
	serve: responses: store: "responses.db"
`

// openaiResponses tests /v1/responses with OpenAI's Go client.
func openaiResponses(t *testing.T) {
	template, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	s, err := startServer(strings.Replace(storingText, "%q", `"`+template+`/tools.jinja"`, 1))
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(s.dir)
	defer func() {
		if err := s.stop(); err != nil {
			t.Error(err)
		}
	}()
	c := clientOf(s.url, "none", 0)
	for _, check := range []struct {
		name string
		run  func(*testing.T, openai.Client)
	}{
		{"conversation", responsesConversation}, {"stream", responsesStream}, {"agent", responsesAgent}, {"schema", responsesSchema},
		{"background", responsesBackground}, {"follow", responsesFollow}, {"items", responsesItems}, {"errors", responsesErrors},
	} {
		t.Run(check.name, func(t *testing.T) { check.run(t, c) })
	}
}

func say(text string) responses.ResponseNewParamsInputUnion {
	return responses.ResponseNewParamsInputUnion{OfString: openai.String(text)}
}

// respond requests a response of at most 40 tokens.
func respond(t *testing.T, c openai.Client, p responses.ResponseNewParams) *responses.Response {
	t.Helper()
	if p.Model = modelName; !p.MaxOutputTokens.Valid() && !p.Background.Value {
		p.MaxOutputTokens = openai.Int(40)
	}
	r, err := c.Responses.New(context.Background(), p)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func responsesConversation(t *testing.T, c openai.Client) {
	r := respond(t, c, responses.ResponseNewParams{Input: say(paris), Metadata: map[string]string{"a": "b"}})
	if r.Status != responses.ResponseStatusCompleted || !strings.Contains(r.OutputText(), "Paris") || r.Metadata["a"] != "b" || r.Model != modelName {
		t.Errorf("%s", r.RawJSON())
	}
	if u := r.Usage; u.InputTokens == 0 || u.OutputTokens == 0 || u.TotalTokens != u.InputTokens+u.OutputTokens {
		t.Errorf("usage %+v", u)
	}
	next := respond(t, c, responses.ResponseNewParams{Input: say("And of Italy?"), PreviousResponseID: openai.String(r.ID)})
	if !strings.Contains(next.OutputText(), "Rome") || next.PreviousResponseID != r.ID {
		t.Errorf("%s", next.RawJSON())
	}
	got, err := c.Responses.Get(context.Background(), next.ID, responses.ResponseGetParams{})
	if err != nil || got.RawJSON() != next.RawJSON() {
		t.Errorf("%v: %s", err, got.RawJSON())
	}
	cut := respond(t, c, responses.ResponseNewParams{Input: say(moon), MaxOutputTokens: openai.Int(3)})
	if cut.Status != responses.ResponseStatusIncomplete || cut.IncompleteDetails.Reason != "max_output_tokens" {
		t.Errorf("%s", cut.RawJSON())
	}
}

// readStream reads a stream and checks that the joined deltas are the text of the final
// response.
func readStream(t *testing.T, s *ssestream.Stream[responses.ResponseStreamEventUnion]) (kinds []string, last responses.Response) {
	t.Helper()
	defer s.Close()
	text := ""
	for n := int64(0); s.Next(); n++ {
		e := s.Current()
		if len(kinds) > 0 && e.SequenceNumber == 0 {
			t.Errorf("event %s has no number", e.Type)
		}
		kinds = append(kinds, e.Type)
		switch e.Type {
		case "response.output_text.delta":
			text += e.Delta
		case "response.completed", "response.incomplete", "response.failed":
			last = e.Response
		}
	}
	if err := s.Err(); err != nil {
		t.Fatal(err)
	}
	if len(kinds) == 0 {
		t.Fatal("no events")
	}
	if kinds[0] == "response.created" && text != last.OutputText() {
		t.Errorf("deltas %q, response %q", text, last.OutputText())
	}
	return kinds, last
}

func responsesStream(t *testing.T, c openai.Client) {
	kinds, last := readStream(t, c.Responses.NewStreaming(context.Background(), responses.ResponseNewParams{
		Model: modelName, Input: say(paris), MaxOutputTokens: openai.Int(40),
		Include: []responses.ResponseIncludable{responses.ResponseIncludableMessageOutputTextLogprobs},
	}))
	if !strings.Contains(last.OutputText(), "Paris") || kinds[1] != "response.in_progress" || kinds[len(kinds)-1] != "response.completed" {
		t.Errorf("%v", kinds)
	}
	probs := last.Output[0].Content[0].Logprobs
	text := ""
	for _, p := range probs {
		text += p.Token
	}
	if text != last.OutputText() {
		t.Errorf("logprobs are of %q", text)
	}
}

// responsesAgent tests an agent's loop: a call, its result, an answer.
func responsesAgent(t *testing.T, c openai.Client) {
	tools := []responses.ToolUnionParam{responses.ToolParamOfFunction("weather", weather, false)}
	r := respond(t, c, responses.ResponseNewParams{Input: say(call), Tools: tools})
	var made responses.ResponseFunctionToolCall
	for _, item := range r.Output {
		if item.Type == "function_call" {
			made = item.AsFunctionCall()
		}
	}
	if made.Name != "weather" || made.CallID == "" {
		t.Fatalf("%s", r.RawJSON())
	}
	isCall(t, made.Arguments)
	result := responses.ResponseInputItemParamOfFunctionCallOutput("It is sunny in Paris, 21 degrees.")
	result.OfFunctionCallOutput.CallID = openai.String(made.CallID)
	answer := respond(t, c, responses.ResponseNewParams{
		Input: responses.ResponseNewParamsInputUnion{OfInputItemList: responses.ResponseInputParam{
			result, responses.ResponseInputItemParamOfMessage("What did the tool say?", responses.EasyInputMessageRoleUser),
		}},
		Tools: tools, PreviousResponseID: openai.String(r.ID),
	})
	if !strings.Contains(answer.OutputText(), "sunny") && !strings.Contains(answer.OutputText(), "21") {
		t.Errorf("%s", answer.RawJSON())
	}
}

func responsesSchema(t *testing.T, c openai.Client) {
	r := respond(t, c, responses.ResponseNewParams{
		Input: say("Make a weather forecast."),
		Text:  responses.ResponseTextConfigParam{Format: responses.ResponseFormatTextConfigParamOfJSONSchema("forecast", forecast)},
	})
	isForecast(t, r.OutputText())
	forced := respond(t, c, responses.ResponseNewParams{
		Input: say("Hello!"), Tools: []responses.ToolUnionParam{responses.ToolParamOfFunction("forecast", forecast, true)},
		ToolChoice: responses.ResponseNewParamsToolChoiceUnion{OfToolChoiceMode: openai.Opt(responses.ToolChoiceOptionsRequired)},
	})
	for _, item := range forced.Output {
		if item.Type == "function_call" {
			isForecast(t, item.AsFunctionCall().Arguments)
			return
		}
	}
	t.Errorf("no call: %s", forced.RawJSON())
}

func responsesBackground(t *testing.T, c openai.Client) {
	ctx := context.Background()
	r := respond(t, c, responses.ResponseNewParams{
		Input: say(endless), Background: openai.Bool(true),
		Text: responses.ResponseTextConfigParam{Format: responses.ResponseFormatTextConfigParamOfJSONSchema("long", longList)},
	})
	if r.Status != responses.ResponseStatusQueued {
		t.Errorf("%s", r.RawJSON())
	}
	for r.Status == responses.ResponseStatusQueued {
		var err error
		if r, err = c.Responses.Get(ctx, r.ID, responses.ResponseGetParams{}); err != nil {
			t.Fatal(err)
		}
	}
	over, err := c.Responses.Cancel(ctx, r.ID)
	if err != nil || over.Status != responses.ResponseStatusCancelled || over.OutputText() == "" {
		t.Errorf("%v %s", err, over.RawJSON())
	}
	if err := c.Responses.Delete(ctx, r.ID); err != nil {
		t.Error(err)
	}
	_, err = c.Responses.Get(ctx, r.ID, responses.ResponseGetParams{})
	isError(t, err, 404, "not found")
	done := respond(t, c, responses.ResponseNewParams{Input: say(paris)})
	_, err = c.Responses.Cancel(ctx, done.ID)
	isError(t, err, 400, "Cannot cancel a synchronous response.")
}

func responsesFollow(t *testing.T, c openai.Client) {
	ctx := context.Background()
	s := c.Responses.NewStreaming(ctx, responses.ResponseNewParams{
		Model: modelName, Input: say(moon), Background: openai.Bool(true), MaxOutputTokens: openai.Int(60),
	})
	var id string
	var n int64
	for range 6 { // then the connection breaks
		if !s.Next() {
			t.Fatal(s.Err())
		}
		if e := s.Current(); e.Type == "response.created" {
			id = e.Response.ID
		} else {
			n = e.SequenceNumber
		}
	}
	s.Close()
	kinds, last := readStream(t, c.Responses.GetStreaming(ctx, id, responses.ResponseGetParams{StartingAfter: openai.Int(n)}))
	all, again := readStream(t, c.Responses.GetStreaming(ctx, id, responses.ResponseGetParams{}))
	if len(all) != len(kinds)+int(n)+1 || last.OutputText() == "" || again.RawJSON() != last.RawJSON() {
		t.Errorf("%d events behind %d, %d in all", len(kinds), n, len(all))
	}
	got, err := c.Responses.Get(ctx, id, responses.ResponseGetParams{})
	if err != nil || got.OutputText() != last.OutputText() {
		t.Errorf("%v %s", err, got.RawJSON())
	}
}

func responsesItems(t *testing.T, c openai.Client) {
	ctx := context.Background()
	r := respond(t, c, responses.ResponseNewParams{Input: say(paris)})
	next := respond(t, c, responses.ResponseNewParams{Input: say("And of Italy?"), PreviousResponseID: openai.String(r.ID)})
	pages := c.Responses.InputItems.ListAutoPaging(ctx, next.ID, responses.InputItemListParams{Order: "asc", Limit: openai.Int(1)})
	var got []string
	var ids []string
	for pages.Next() {
		item := pages.Current()
		got, ids = append(got, item.Type), append(ids, item.ID)
	}
	if err := pages.Err(); err != nil || strings.Join(got, " ") != "message message message" {
		t.Fatalf("%v %v", err, got)
	}
	again := respond(t, c, responses.ResponseNewParams{Input: responses.ResponseNewParamsInputUnion{OfInputItemList: responses.ResponseInputParam{
		responses.ResponseInputItemParamOfItemReference(ids[0]),
	}}})
	if again.OutputText() != r.OutputText() {
		t.Errorf("%q, by reference %q", r.OutputText(), again.OutputText())
	}
}

func responsesErrors(t *testing.T, c openai.Client) {
	ctx := context.Background()
	for _, x := range []struct {
		p    responses.ResponseNewParams
		code int
		text string
	}{
		{responses.ResponseNewParams{Input: say("x"), PreviousResponseID: openai.String("resp_none")}, 404, "Response with id 'resp_none' not found."},
		{responses.ResponseNewParams{Input: say(strings.Repeat("moon ", 5000))}, 400, "maximum context length"},
		{responses.ResponseNewParams{Input: say("x"), Background: openai.Bool(true), Store: openai.Bool(false)}, 400, "needs `store`"},
		{responses.ResponseNewParams{Input: say("x"), Temperature: param.NewOpt(-1.0)}, 400, "temperature must be non-negative"},
	} {
		x.p.Model = modelName
		_, err := c.Responses.New(ctx, x.p)
		isError(t, err, x.code, x.text)
	}
}

func isError(t *testing.T, err error, code int, text string) {
	t.Helper()
	var e *openai.Error
	if !errors.As(err, &e) || e.StatusCode != code || !strings.Contains(e.Message, text) {
		t.Errorf("%v, want %d %s", err, code, text)
	}
}
