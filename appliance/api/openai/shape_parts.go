package openai

import "encoding/json"

// The parts of requests' bodies.
type (
	streamBody struct {
		IncludeUsage *bool `json:"include_usage" default:"false" description:"The last chunk tells the usage."`
		Continuous   *bool `json:"continuous_usage_stats" default:"false" description:"Every chunk tells it; needs include_usage."`
	}

	formatBody struct {
		Type       string          `json:"type" required:"true" enum:"text,json_object,json_schema,structural_tag"`
		JSONSchema *jsonSchemaBody `json:"json_schema"`
	}

	jsonSchemaBody struct {
		Name   *string         `json:"name"`
		Schema json.RawMessage `json:"schema" description:"A JSON Schema."`
		Strict *bool           `json:"strict"`
	}

	messageBody struct {
		Role             string         `json:"role" required:"true" minLength:"1" description:"system, developer, user, assistant, tool, or what the template knows."`
		Content          *contentBody   `json:"content"`
		Name             *string        `json:"name"`
		ToolCallID       *string        `json:"tool_call_id" description:"Of a tool's message: the call it answers."`
		ToolCalls        []toolCallBody `json:"tool_calls" description:"Of an assistant's message: the calls it made."`
		Tools            []toolBody     `json:"tools" description:"Of a developer's message: functions that the model may call."`
		Reasoning        *string        `json:"reasoning" description:"Of an assistant's message: what it thought."`
		ReasoningContent *string        `json:"reasoning_content" deprecated:"true" description:"Older name of reasoning."`
	}

	toolCallBody struct {
		ID       *string        `json:"id"`
		Type     *string        `json:"type" enum:"function"`
		Function calledFunction `json:"function" required:"true"`
	}

	calledFunction struct {
		Name      string         `json:"name" required:"true" minLength:"1"`
		Arguments *argumentsBody `json:"arguments" description:"An object, or one as JSON text."`
	}

	partBody struct {
		Type string  `json:"type" required:"true" enum:"text,input_text,output_text,refusal,thinking"`
		Text *string `json:"text"`
	}

	toolBody struct {
		Type     *string      `json:"type" enum:"function"`
		Function functionBody `json:"function" required:"true"`
	}

	functionBody struct {
		Name        string         `json:"name" required:"true" minLength:"1" description:"Unique among the tools."`
		Description *string        `json:"description"`
		Parameters  map[string]any `json:"parameters" description:"A JSON Schema of the arguments; absent: none."`
		Strict      *bool          `json:"strict"`
	}

	namedBody struct {
		Type     *string  `json:"type" enum:"function"`
		Function nameBody `json:"function" required:"true"`
	}

	nameBody struct {
		Name string `json:"name" required:"true"`
	}
)

// What is of one of several types.
type (
	stringsBody   struct{}
	promptBody    struct{}
	contentBody   struct{}
	choiceBody    struct{}
	argumentsBody struct{}
	itemsBody     struct{}
)

// JSONSchemaAnyOf lists the types.
func (stringsBody) JSONSchemaAnyOf() []any { return []any{"", []string{}} }

// JSONSchemaAnyOf lists the types.
func (promptBody) JSONSchemaAnyOf() []any { return []any{"", []string{}, []int32{}, [][]int32{}} }

// JSONSchemaAnyOf lists the types.
func (contentBody) JSONSchemaAnyOf() []any { return []any{"", []partBody{}} }

// JSONSchemaAnyOf lists the types.
func (choiceBody) JSONSchemaAnyOf() []any { return []any{choiceWord(""), namedBody{}} }

// JSONSchemaAnyOf lists the types.
func (argumentsBody) JSONSchemaAnyOf() []any { return []any{"", map[string]any{}} }

// JSONSchemaAnyOf lists the types.
func (itemsBody) JSONSchemaAnyOf() []any { return []any{"", []map[string]any{}} }

// choiceWord is one of the words that tool_choice may be.
type choiceWord string

// Enum lists the words.
func (choiceWord) Enum() []any { return []any{"none", "auto", "required"} }
