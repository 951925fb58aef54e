package openai

// Shape holds Go values of the types of a route's bodies, for the OpenAPI document:
// the alternatives of the request, the reply, and a record of a stream.
type Shape struct {
	Request       []any
	Reply, Record any
}

// ChatShape returns the shape of POST /v1/chat/completions.
func ChatShape() Shape { return Shape{[]any{chatBody{}}, chatReply{}, chatChunk{}} }

// CompletionShape returns the shape of POST /v1/completions.
func CompletionShape() Shape { return Shape{[]any{completionBody{}}, textReply{}, textChunk{}} }

// BatchShape returns the shape of POST /v1/chat/completions/batch.
func BatchShape() Shape { return Shape{Request: []any{batchBody{}}, Reply: chatReply{}} }

// RenderChatShape returns the shape of POST /v1/chat/completions/render.
func RenderChatShape() Shape { return Shape{Request: []any{chatBody{}}, Reply: generateBody{}} }

// RenderCompletionShape returns the shape of POST /v1/completions/render.
func RenderCompletionShape() Shape {
	return Shape{Request: []any{completionBody{}}, Reply: []generateBody{}}
}

// GenerateShape returns the shape of POST /inference/v1/generate.
func GenerateShape() Shape {
	return Shape{[]any{generateBody{}}, generateReply{}, generateChunk{}}
}

// InvocationsShape returns the shape of POST /invocations.
func InvocationsShape() Shape {
	return Shape{Request: []any{chatBody{}, completionBody{}, poolBody{}, poolChatBody{}, rerankBody{}, scoreBody{}}, Reply: map[string]any{}, Record: map[string]any{}}
}

// ResponsesShape returns the shape of POST /v1/responses.
func ResponsesShape() Shape { return Shape{[]any{responsesBody{}}, response{}, responseEvent{}} }

// TokenizeShape returns the shape of POST /tokenize.
func TokenizeShape() Shape {
	return Shape{Request: []any{tokenizeBody{}, tokenizeChatBody{}}, Reply: tokenizeReply{}}
}

// DetokenizeShape returns the shape of POST /detokenize.
func DetokenizeShape() Shape {
	return Shape{Request: []any{detokenizeBody{}}, Reply: detokenizeReply{}}
}

// LoadAdapterShape returns the shape of POST /v1/load_lora_adapter.
func LoadAdapterShape() Shape { return Shape{Request: []any{loadAdapterBody{}}, Reply: ""} }

// UnloadAdapterShape returns the shape of POST /v1/unload_lora_adapter.
func UnloadAdapterShape() Shape { return Shape{Request: []any{unloadAdapterBody{}}, Reply: ""} }

// ModelsShape returns the shape of GET /v1/models.
func ModelsShape() Shape { return Shape{Reply: modelList{}} }

// The request bodies of the OpenAPI document. A test compares their fields with those
// that the decoders read. A field that is not required may be null.
type (
	chatBody struct {
		Messages []messageBody `json:"messages" required:"true" nullable:"false" minItems:"1" description:"The conversation so far."`
		askBody
		templateBody
		mediaBody
		MaxTokens           *int32      `json:"max_tokens" deprecated:"true" description:"Older name of max_completion_tokens."`
		MaxCompletionTokens *int32      `json:"max_completion_tokens" minimum:"1" description:"Maximum number of tokens of a choice; absent: as many as the context allows."`
		AddSpecialTokens    *bool       `json:"add_special_tokens" default:"false" description:"Add the tokenizer's special tokens; templates usually contain them."`
		IncludeReasoning    *bool       `json:"include_reasoning" default:"true" description:"false: leave the reasoning out of the reply."`
		Logprobs            *bool       `json:"logprobs" default:"false" description:"Return the log probability of each token."`
		TopLogprobs         *int32      `json:"top_logprobs" default:"0" minimum:"-1" description:"Number of alternatives of each token; -1: all. Needs logprobs."`
		Tools               []toolBody  `json:"tools" description:"Functions that the model may call."`
		ToolChoice          *choiceBody `json:"tool_choice" description:"none, auto, required, or the function to call; absent: auto if there are tools."`
		ParallelToolCalls   *bool       `json:"parallel_tool_calls" default:"true" description:"false: at most one call."`
	}

	batchBody struct {
		Messages [][]messageBody `json:"messages" required:"true" nullable:"false" minItems:"1" description:"The conversations; choice i answers conversation i."`
		askBody
		templateBody
		mediaBody
		MaxTokens           *int32 `json:"max_tokens" minimum:"1" description:"Maximum number of tokens of a choice."`
		MaxCompletionTokens *int32 `json:"max_completion_tokens" minimum:"1" description:"Newer name of max_tokens."`
	}

	completionBody struct {
		Prompt promptBody `json:"prompt" required:"true" description:"One or several prompts, as text or token ids."`
		askBody
		MaxTokens        *int32  `json:"max_tokens" default:"16" minimum:"0" description:"Maximum number of tokens of a choice; 0 only with echo."`
		AddSpecialTokens *bool   `json:"add_special_tokens" default:"true" description:"Add the tokenizer's special tokens."`
		Logprobs         *int32  `json:"logprobs" minimum:"0" description:"Number of alternatives of each token; 0: only the chosen token."`
		Suffix           *string `json:"suffix" description:"Refused: text after the reply is not supported."`
	}

	tokenizeBody struct {
		Prompt           string  `json:"prompt" required:"true" description:"The text."`
		Model            *string `json:"model"`
		AddSpecialTokens *bool   `json:"add_special_tokens" default:"true"`
		Strings          *bool   `json:"return_token_strs" default:"false" description:"Return the text of each token."`
	}

	tokenizeChatBody struct {
		Messages []messageBody `json:"messages" required:"true" nullable:"false" minItems:"1"`
		templateBody
		mediaBody
		Tools            []toolBody `json:"tools"`
		Model            *string    `json:"model"`
		AddSpecialTokens *bool      `json:"add_special_tokens" default:"false"`
		Strings          *bool      `json:"return_token_strs" default:"false" description:"Return the text of each token."`
	}

	loadAdapterBody struct {
		LoraName    string `json:"lora_name" required:"true" description:"The name that requests give as model."`
		LoraPath    string `json:"lora_path" required:"true" description:"The folder of a PEFT adapter on the server's machine, or the name of one in its Hugging Face cache."`
		LoadInplace *bool  `json:"load_inplace" default:"false" description:"Replace a loaded adapter of that name."`
		Stacked     *bool  `json:"is_3d_lora_weight" default:"false" enum:"false" description:"Adapters of experts, which are not served."`
	}

	unloadAdapterBody struct {
		LoraName string `json:"lora_name" required:"true" description:"The adapter's name."`
	}

	detokenizeBody struct {
		Tokens []int32 `json:"tokens" required:"true" nullable:"false"`
		Model  *string `json:"model"`
	}
)
