package openai

import "encoding/json"

// Parts of request bodies.
type (
	streamBody struct {
		IncludeUsage *bool `json:"include_usage" default:"false" description:"The last chunk has the usage."`
		Continuous   *bool `json:"continuous_usage_stats" default:"false" description:"Every chunk has the usage; needs include_usage."`
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
		Role             string         `json:"role" required:"true" minLength:"1" description:"system, developer, user, assistant, tool, or another role of the template."`
		Content          *contentBody   `json:"content"`
		Name             *string        `json:"name"`
		ToolCallID       *string        `json:"tool_call_id" description:"In a tool's message: the id of the call."`
		ToolCalls        []toolCallBody `json:"tool_calls" description:"In an assistant's message: its calls."`
		Tools            []toolBody     `json:"tools" description:"In a developer's message: functions that the model may call."`
		Reasoning        *string        `json:"reasoning" description:"In an assistant's message: its reasoning."`
		ReasoningContent *string        `json:"reasoning_content" deprecated:"true" description:"Older name of reasoning."`
	}

	toolCallBody struct {
		ID       *string        `json:"id"`
		Type     *string        `json:"type" enum:"function"`
		Function calledFunction `json:"function" required:"true"`
	}

	calledFunction struct {
		Name      string         `json:"name" required:"true" minLength:"1"`
		Arguments *argumentsBody `json:"arguments" description:"An object, or its JSON text."`
	}

	textPartBody struct {
		Type string  `json:"type" required:"true" enum:"text,input_text,output_text,refusal,thinking"`
		Text *string `json:"text"`
	}

	imagePartBody struct {
		Type     string        `json:"type" required:"true" enum:"image_url,input_image"`
		ImageURL *mediaURLBody `json:"image_url" description:"A data:, http:, https: or file: URL of an image, or an object with it; the profile says which sources are allowed. null: the image that an earlier request named uuid."`
		UUID     *string       `json:"uuid" description:"The client's name of the image; later requests may give it in place of the URL."`
		Detail   *string       `json:"detail" description:"Accepted, without effect."`
	}

	videoPartBody struct {
		Type     string        `json:"type" required:"true" enum:"video_url"`
		VideoURL *mediaURLBody `json:"video_url" description:"The URL of a video, or an object with it: frames as data:video/jpeg;base64,F1,F2 or a GIF or WebP, from the sources of images. null: the video that an earlier request named uuid."`
		UUID     *string       `json:"uuid" description:"The client's name of the video; later requests may give it in place of the URL."`
	}

	urlBody struct {
		URL    string  `json:"url" required:"true" minLength:"1"`
		Detail *string `json:"detail" description:"Accepted, without effect."`
	}

	// inputMessageBody is the item of /v1/responses that has contents.
	inputMessageBody struct {
		Type    *string      `json:"type" enum:"message"`
		Role    string       `json:"role" required:"true" minLength:"1"`
		Content *contentBody `json:"content"`
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

// Values that may have one of several types.
type (
	stringsBody   struct{}
	promptBody    struct{}
	contentBody   struct{}
	partBody      struct{}
	mediaURLBody  struct{}
	choiceBody    struct{}
	argumentsBody struct{}
	itemsBody     struct{}
	itemBody      struct{}
)

// JSONSchemaAnyOf returns the alternatives.
func (stringsBody) JSONSchemaAnyOf() []any { return []any{"", []string{}} }

// JSONSchemaAnyOf returns the alternatives.
func (promptBody) JSONSchemaAnyOf() []any { return []any{"", []string{}, []int32{}, [][]int32{}} }

// JSONSchemaAnyOf returns the alternatives.
func (contentBody) JSONSchemaAnyOf() []any { return []any{"", []partBody{}} }

// JSONSchemaAnyOf returns the alternatives.
func (choiceBody) JSONSchemaAnyOf() []any { return []any{choiceWord(""), namedBody{}} }

// JSONSchemaAnyOf returns the alternatives.
func (argumentsBody) JSONSchemaAnyOf() []any { return []any{"", map[string]any{}} }

// JSONSchemaAnyOf returns the alternatives.
func (partBody) JSONSchemaAnyOf() []any {
	return []any{textPartBody{}, imagePartBody{}, videoPartBody{}}
}

// JSONSchemaAnyOf returns the alternatives.
func (mediaURLBody) JSONSchemaAnyOf() []any { return []any{"", urlBody{}} }

// JSONSchemaAnyOf returns the alternatives.
func (itemsBody) JSONSchemaAnyOf() []any { return []any{"", []itemBody{}} }

// JSONSchemaAnyOf returns the alternatives.
func (itemBody) JSONSchemaAnyOf() []any { return []any{inputMessageBody{}, map[string]any{}} }

// choiceWord is a value of tool_choice that is a string.
type choiceWord string

// Enum returns the values.
func (choiceWord) Enum() []any { return []any{"none", "auto", "required"} }
