package openai

import (
	"encoding/json"
	"slices"
	"strings"

	"vapp.dev/appliance/chat/structured"
)

func responseReasoning(f *fields, r *ResponsesRequest) {
	raw := f.object("reasoning")
	r.echo.Reasoning = json.RawMessage(`{"effort":null,"summary":null}`)
	if raw == nil {
		return
	}
	o := newFields("reasoning.", raw)
	effort, summary := o.strOpt("effort"), o.strOpt("summary")
	if effort != nil {
		if r.Ask.Chat.ReasoningEffort = *effort; !slices.Contains(efforts, *effort) {
			o.fail(malformed("reasoning.effort", "`reasoning.effort` must be one of none, minimal, low, medium, high, xhigh, max, got %q.", *effort))
		}
	}
	// There is no summary: replies have the whole reasoning.
	if words := []string{"auto", "concise", "detailed"}; summary != nil && !slices.Contains(words, *summary) {
		o.fail(malformed("reasoning.summary", "`reasoning.summary` must be auto, concise or detailed, got %q.", *summary))
	}
	if o.err != nil {
		f.fail(o.err)
		return
	}
	r.echo.Reasoning = encode(struct {
		Effort  *string `json:"effort"`
		Summary *string `json:"summary"`
	}{effort, summary})
}

// responseText reads text.format, this protocol's form of response_format.
func responseText(f *fields, r *ResponsesRequest) {
	r.echo.Text = json.RawMessage(`{"format":{"type":"text"}}`)
	raw := f.object("text")
	if raw == nil {
		return
	}
	o := newFields("text.", raw)
	format := newFields("text.format.", o.object("format"))
	o.str("verbosity") // ignored, as in chats
	switch kind := format.str("type"); {
	case o.err != nil:
		f.fail(o.err)
	case format.err != nil:
		f.fail(format.err)
	case kind == "" || kind == "text":
	case kind == "json_object":
		responseStructure(f, r, "text.format", json.RawMessage(`{"type":"object"}`))
	case kind == "json_schema":
		schema, ok := format.get("schema")
		if !ok {
			f.fail(malformed("text.format.schema", "Field required: `text.format.schema`."))
		}
		responseStructure(f, r, "text.format.schema", schema)
	default:
		f.fail(malformed("text.format.type", "`text.format.type` must be text, json_object or json_schema, got %q.", kind))
	}
	if f.err == nil {
		if !o.has("format") {
			raw["format"] = json.RawMessage(`{"type":"text"}`)
		}
		r.echo.Text = encode(raw)
	}
}

// responseStructure constrains the reply to a schema. It fails if structured_outputs
// has set a constraint.
func responseStructure(f *fields, r *ResponsesRequest, at string, schema json.RawMessage) {
	if a := &r.Ask; f.err == nil && a.Structure != nil {
		f.fail(malformed("text.format", "You can only use one kind of structured outputs constraint but multiple are specified: `text.format` and `%s`.", a.Structure.Param))
	} else if f.err == nil {
		a.Structure = &structured.Constraint{Kind: structured.JSONSchema, Param: at, Source: schemaText(f, at, schema, structured.SchemaOptions{})}
	}
}

// The values of include that have an effect.
const (
	includeLogprobs = "message.output_text.logprobs"
	includeSealed   = "reasoning.encrypted_content"
)

// includes lists OpenAI's values of include. Except the two above they have no effect:
// they concern tools that this server does not run.
var includes = []string{
	includeLogprobs, includeSealed, "web_search_call.action.sources", "web_search_call.results", "code_interpreter_call.outputs",
	"computer_call_output.output.image_url", "file_search_call.results", "message.input_image.image_url",
}

func responseInclude(f *fields, r *ResponsesRequest) {
	top := f.intOpt("top_logprobs")
	if top != nil && *top < 0 {
		f.fail(malformed("top_logprobs", "`top_logprobs` must be a positive value."))
		return
	}
	if top != nil {
		r.echo.TopLogprobs = *top
	}
	for _, word := range f.strings("include") {
		switch {
		case word == includeLogprobs:
			n := r.echo.TopLogprobs
			r.Ask.Logprobs, r.Wire.TopLogprobs = &n, n
		case word == includeSealed:
			r.sealed = true
		case !slices.Contains(includes, word):
			f.fail(malformed("include", "`include` knows %s, got %q.", strings.Join(includes, ", "), word))
		}
	}
	if top != nil && *top > 0 && r.Ask.Logprobs == nil {
		f.fail(malformed("top_logprobs", "when using `top_logprobs`, `include` must hold %q.", includeLogprobs))
	}
}

func responseTruncation(f *fields, r *ResponsesRequest) {
	r.echo.Truncation = "disabled"
	switch word := f.str("truncation"); word {
	case "", "disabled":
	case "auto":
		rest := -1
		r.echo.Truncation, r.Ask.Truncate = word, &rest
	default:
		f.fail(malformed("truncation", "`truncation` must be auto or disabled, got %q.", word))
	}
}
