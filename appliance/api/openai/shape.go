package openai

// Shape is a route's bodies as Go values, for who describes the API: what the body
// of a request is (one of them), of a reply, and of a record of a stream.
type Shape struct {
	Request       []any
	Reply, Record any
}

// ChatShape is that of POST /v1/chat/completions.
func ChatShape() Shape { return Shape{[]any{chatBody{}}, chatReply{}, chatChunk{}} }

// CompletionShape is that of POST /v1/completions.
func CompletionShape() Shape { return Shape{[]any{completionBody{}}, textReply{}, textChunk{}} }

// BatchShape is that of POST /v1/chat/completions/batch.
func BatchShape() Shape { return Shape{Request: []any{batchBody{}}, Reply: chatReply{}} }

// RenderChatShape is that of POST /v1/chat/completions/render.
func RenderChatShape() Shape { return Shape{Request: []any{chatBody{}}, Reply: generateBody{}} }

// RenderCompletionShape is that of POST /v1/completions/render.
func RenderCompletionShape() Shape {
	return Shape{Request: []any{completionBody{}}, Reply: []generateBody{}}
}

// GenerateShape is that of POST /inference/v1/generate.
func GenerateShape() Shape {
	return Shape{[]any{generateBody{}}, generateReply{}, generateChunk{}}
}

// InvocationsShape is that of POST /invocations.
func InvocationsShape() Shape {
	return Shape{Request: []any{chatBody{}, completionBody{}, poolBody{}, poolChatBody{}, rerankBody{}, scoreBody{}}, Reply: map[string]any{}, Record: map[string]any{}}
}

// ResponsesShape is that of POST /v1/responses.
func ResponsesShape() Shape { return Shape{[]any{responsesBody{}}, response{}, responseEvent{}} }

// TokenizeShape is that of POST /tokenize.
func TokenizeShape() Shape {
	return Shape{Request: []any{tokenizeBody{}, tokenizeChatBody{}}, Reply: tokenizeReply{}}
}

// DetokenizeShape is that of POST /detokenize.
func DetokenizeShape() Shape {
	return Shape{Request: []any{detokenizeBody{}}, Reply: detokenizeReply{}}
}

// ModelsShape is that of GET /v1/models.
func ModelsShape() Shape { return Shape{Reply: modelList{}} }

// The bodies of requests as they are told to clients. fields.go reads them; a test
// holds the names and types of both together. A field that is not required may be
// null.
type (
	chatBody struct {
		Messages []messageBody `json:"messages" required:"true" nullable:"false" minItems:"1" description:"The conversation so far."`
		askBody
		templateBody
		MaxTokens           *int32      `json:"max_tokens" deprecated:"true" description:"Older name of max_completion_tokens."`
		MaxCompletionTokens *int32      `json:"max_completion_tokens" minimum:"1" description:"How many tokens a choice may have; absent: what the context has room for."`
		AddSpecialTokens    *bool       `json:"add_special_tokens" default:"false" description:"Adds what the tokenizer puts around a text; templates carry their own."`
		IncludeReasoning    *bool       `json:"include_reasoning" default:"true" description:"false: the reply does not show the reasoning."`
		Logprobs            *bool       `json:"logprobs" default:"false" description:"Tells the log probability of each token."`
		TopLogprobs         *int32      `json:"top_logprobs" default:"0" minimum:"-1" description:"Alternatives of each token; -1: all. Needs logprobs."`
		Tools               []toolBody  `json:"tools" description:"Functions that the model may call."`
		ToolChoice          *choiceBody `json:"tool_choice" description:"none, auto, required, or the function to call; absent: auto where there are tools."`
		ParallelToolCalls   *bool       `json:"parallel_tool_calls" default:"true" description:"false: one call at most."`
	}

	batchBody struct {
		Messages [][]messageBody `json:"messages" required:"true" nullable:"false" minItems:"1" description:"The conversations; choice i answers conversation i."`
		askBody
		templateBody
		MaxTokens           *int32 `json:"max_tokens" minimum:"1" description:"How many tokens a choice may have."`
		MaxCompletionTokens *int32 `json:"max_completion_tokens" minimum:"1" description:"The same."`
	}

	completionBody struct {
		Prompt promptBody `json:"prompt" required:"true" description:"Text or token ids, one or several."`
		askBody
		MaxTokens        *int32  `json:"max_tokens" default:"16" minimum:"0" description:"How many tokens a choice may have; 0 only with echo."`
		AddSpecialTokens *bool   `json:"add_special_tokens" default:"true" description:"Adds what the tokenizer puts around a text."`
		Logprobs         *int32  `json:"logprobs" minimum:"0" description:"Alternatives of each token; 0: the chosen one alone."`
		Suffix           *string `json:"suffix" description:"Refused: text after the reply is not supported."`
	}

	tokenizeBody struct {
		Prompt           string  `json:"prompt" required:"true" description:"The text."`
		Model            *string `json:"model"`
		AddSpecialTokens *bool   `json:"add_special_tokens" default:"true"`
		Strings          *bool   `json:"return_token_strs" default:"false" description:"Tells the spelling of each token."`
	}

	tokenizeChatBody struct {
		Messages []messageBody `json:"messages" required:"true" nullable:"false" minItems:"1"`
		templateBody
		Tools            []toolBody `json:"tools"`
		Model            *string    `json:"model"`
		AddSpecialTokens *bool      `json:"add_special_tokens" default:"false"`
		Strings          *bool      `json:"return_token_strs" default:"false" description:"Tells the spelling of each token."`
	}

	detokenizeBody struct {
		Tokens []int32 `json:"tokens" required:"true" nullable:"false"`
		Model  *string `json:"model"`
	}
)
