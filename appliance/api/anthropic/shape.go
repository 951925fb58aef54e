package anthropic

import "encoding/json"

// Shape holds Go values of the types of a route's bodies, for the OpenAPI document.
type Shape struct{ Request, Reply, Record any }

// MessagesShape returns the shape of POST /v1/messages.
func MessagesShape() Shape { return Shape{messagesBody{}, message{}, eventBody{}} }

// CountShape returns the shape of POST /v1/messages/count_tokens.
func CountShape() Shape { return Shape{Request: countBody{}, Reply: countReply{}} }

// ErrorShape returns a value of the type of error bodies.
func ErrorShape() any { return errorBody{} }

// The request bodies of the OpenAPI document. A field that is not required may be
// null.
type (
	messagesBody struct {
		MaxTokens int32 `json:"max_tokens" required:"true" minimum:"1" description:"Maximum number of tokens of the reply."`
		countBody
		Stream        *bool           `json:"stream" default:"false" description:"Answer with server-sent events."`
		Temperature   *float64        `json:"temperature" minimum:"0" description:"0: always the most likely token."`
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
		System         *blocksBody     `json:"system" description:"The system prompt."`
		Tools          []toolBody      `json:"tools" description:"Functions that the model may use."`
		ToolChoice     *toolChoiceBody `json:"tool_choice"`
		Thinking       *thinkingBody   `json:"thinking"`
		OutputConfig   *outputBody     `json:"output_config"`
		TemplateKwargs map[string]any  `json:"chat_template_kwargs" description:"Variables of the chat template."`
		MCPServers     []any           `json:"mcp_servers" maxItems:"0" description:"Refused: this server calls no other servers."`
	}

	turnBody struct {
		Role    string     `json:"role" required:"true" enum:"user,assistant"`
		Content blocksBody `json:"content" required:"true"`
	}

	blockBody struct {
		Type      string         `json:"type" required:"true" enum:"text,image,tool_use,tool_result,thinking,redacted_thinking"`
		Text      *string        `json:"text"`
		Thinking  *string        `json:"thinking"`
		ID        *string        `json:"id"`
		Name      *string        `json:"name"`
		Input     map[string]any `json:"input"`
		ToolUseID *string        `json:"tool_use_id"`
		Content   *resultBody    `json:"content" description:"Of a tool_result: text, or blocks of text and images."`
		IsError   *bool          `json:"is_error"`
		Source    *sourceBody    `json:"source" description:"Of an image."`
	}

	resultBlockBody struct {
		Type   string      `json:"type" required:"true" enum:"text,image"`
		Text   *string     `json:"text"`
		Source *sourceBody `json:"source" description:"Of an image."`
	}

	sourceBody struct {
		Type      string  `json:"type" required:"true" enum:"base64,url"`
		MediaType *string `json:"media_type" description:"Of base64, such as image/png. The data says which format it is."`
		Data      *string `json:"data" description:"The image in base64."`
		URL       *string `json:"url" description:"Of type url: a data:, http:, https: or file: URL; the profile says which sources are allowed."`
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
		Name    *string `json:"name" description:"With type tool: the tool to use."`
		OneCall *bool   `json:"disable_parallel_tool_use" default:"false"`
	}

	thinkingBody struct {
		Type   string `json:"type" required:"true" enum:"enabled,disabled,adaptive"`
		Budget *int32 `json:"budget_tokens" minimum:"1" description:"Maximum number of reasoning tokens; ignored for models whose dialect has no end-of-thinking marker."`
	}

	outputBody struct {
		Effort *string     `json:"effort" enum:"low,medium,high,xhigh,max"`
		Format *formatBody `json:"format"`
	}

	formatBody struct {
		Type   string         `json:"type" required:"true" enum:"json_schema"`
		Schema map[string]any `json:"schema" required:"true" nullable:"false" description:"A JSON Schema of the reply's text."`
	}

	// eventBody has the field that all events of a stream have.
	eventBody struct {
		Type string `json:"type" enum:"message_start,content_block_start,content_block_delta,content_block_stop,message_delta,message_stop,error"`
	}
)

// blocksBody is a string or an array of blocks.
type blocksBody struct{}

// resultBody is the content of a tool_result.
type resultBody struct{}

// JSONSchemaAnyOf returns the alternatives.
func (resultBody) JSONSchemaAnyOf() []any { return []any{"", []resultBlockBody{}} }

// JSONSchemaAnyOf returns the alternatives.
func (blocksBody) JSONSchemaAnyOf() []any { return []any{"", []blockBody{}} }
