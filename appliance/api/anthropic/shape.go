package anthropic

import "encoding/json"

// Shape is a route's bodies as Go values, for who describes the API.
type Shape struct{ Request, Reply, Record any }

// MessagesShape is that of POST /v1/messages.
func MessagesShape() Shape { return Shape{messagesBody{}, message{}, eventBody{}} }

// CountShape is that of POST /v1/messages/count_tokens.
func CountShape() Shape { return Shape{Request: countBody{}, Reply: countReply{}} }

// ErrorShape is the body of an error.
func ErrorShape() any { return errorBody{} }

// The bodies of requests as they are told to clients; read.go and those beside it
// read them. A field that is not required may be null.
type (
	messagesBody struct {
		MaxTokens int32 `json:"max_tokens" required:"true" minimum:"1" description:"How many tokens the reply may have."`
		countBody
		Stream        *bool           `json:"stream" default:"false" description:"Answers with server-sent events."`
		Temperature   *float64        `json:"temperature" minimum:"0" description:"0: always the likeliest token."`
		TopP          *float64        `json:"top_p" exclusiveMinimum:"0" maximum:"1"`
		TopK          *int32          `json:"top_k" minimum:"-1"`
		StopSequences []string        `json:"stop_sequences" description:"Texts that end the reply."`
		Metadata      json.RawMessage `json:"metadata" description:"Accepted, without effect."`
		ServiceTier   json.RawMessage `json:"service_tier" description:"Accepted, without effect."`
		Container     json.RawMessage `json:"container" description:"Accepted, without effect."`
		InferenceGeo  json.RawMessage `json:"inference_geo" description:"Accepted, without effect."`
		CacheControl  json.RawMessage `json:"cache_control" description:"Accepted, without effect."`
	}

	countBody struct {
		Messages       []turnBody      `json:"messages" required:"true" nullable:"false" minItems:"1"`
		Model          *string         `json:"model" description:"A served name; absent or empty: the first."`
		System         *blocksBody     `json:"system" description:"What comes before the conversation."`
		Tools          []toolBody      `json:"tools" description:"Functions that the model may use."`
		ToolChoice     *toolChoiceBody `json:"tool_choice"`
		Thinking       *thinkingBody   `json:"thinking"`
		OutputConfig   *outputBody     `json:"output_config"`
		TemplateKwargs map[string]any  `json:"chat_template_kwargs" description:"Variables of the chat template."`
		MCPServers     []any           `json:"mcp_servers" maxItems:"0" description:"Refused: this server calls no other one."`
	}

	turnBody struct {
		Role    string     `json:"role" required:"true" enum:"user,assistant"`
		Content blocksBody `json:"content" required:"true"`
	}

	blockBody struct {
		Type      string          `json:"type" required:"true" enum:"text,tool_use,tool_result,thinking,redacted_thinking"`
		Text      *string         `json:"text"`
		Thinking  *string         `json:"thinking"`
		ID        *string         `json:"id"`
		Name      *string         `json:"name"`
		Input     map[string]any  `json:"input"`
		ToolUseID *string         `json:"tool_use_id"`
		Content   json.RawMessage `json:"content" description:"Of a tool_result: text, or blocks of text."`
		IsError   *bool           `json:"is_error"`
	}

	toolBody struct {
		Type        *string        `json:"type" enum:"custom"`
		Name        string         `json:"name" required:"true" minLength:"1" description:"Unique among the tools."`
		Description *string        `json:"description"`
		InputSchema map[string]any `json:"input_schema" required:"true" nullable:"false" description:"A JSON Schema of the input."`
		Strict      *bool          `json:"strict"`
	}

	toolChoiceBody struct {
		Type    string  `json:"type" required:"true" enum:"auto,any,tool,none"`
		Name    *string `json:"name" description:"With tool: the one to use."`
		OneCall *bool   `json:"disable_parallel_tool_use" default:"false"`
	}

	thinkingBody struct {
		Type   string `json:"type" required:"true" enum:"enabled,disabled,adaptive"`
		Budget *int32 `json:"budget_tokens" minimum:"1" description:"Accepted; how long a model thinks is its own choice."`
	}

	outputBody struct {
		Effort *string     `json:"effort" enum:"low,medium,high,xhigh,max"`
		Format *formatBody `json:"format"`
	}

	formatBody struct {
		Type   string         `json:"type" required:"true" enum:"json_schema"`
		Schema map[string]any `json:"schema" required:"true" nullable:"false" description:"A JSON Schema of the reply's text."`
	}

	// eventBody is what every event of a stream has.
	eventBody struct {
		Type string `json:"type" enum:"message_start,content_block_start,content_block_delta,content_block_stop,message_delta,message_stop,error"`
	}
)

// blocksBody is text, or blocks of it.
type blocksBody struct{}

// JSONSchemaAnyOf lists the types.
func (blocksBody) JSONSchemaAnyOf() []any { return []any{"", []blockBody{}} }
