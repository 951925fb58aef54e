package openai

import "encoding/json"

// Fields that several request bodies share.
type (
	// askBody has the fields that chats and completions share.
	askBody struct {
		Model     *string      `json:"model" description:"A served name; absent or empty: the first."`
		RequestID *string      `json:"request_id" description:"Id of the request, unless the header X-Request-Id is set."`
		N         *int32       `json:"n" default:"1" minimum:"1" description:"Number of choices."`
		BestOf    *int32       `json:"best_of" deprecated:"true" description:"Number of choices, at most n."`
		Stream    *bool        `json:"stream" default:"false" description:"Answer with server-sent events."`
		Options   *streamBody  `json:"stream_options" description:"Only with stream."`
		Seed      *int64       `json:"seed" description:"The same seed gives the same reply; -1: none."`
		Stop      *stringsBody `json:"stop" description:"Texts that end the reply."`
		samplingBody
		penaltyBody
		tokenBody
		StopTokenIDs []int32 `json:"stop_token_ids" description:"Tokens that end the reply."`
		IncludeStop  *bool   `json:"include_stop_str_in_output" default:"false" description:"Keep the stop string in the text."`
		IgnoreEOS    *bool   `json:"ignore_eos" default:"false" description:"Continue after the end-of-sequence token."`
		MinTokens    *int32  `json:"min_tokens" default:"0" minimum:"0" description:"Minimum number of tokens."`
		structureBody
		ThinkingBudget   *int32          `json:"thinking_token_budget" description:"Maximum number of reasoning tokens."`
		Repetition       *repetitionBody `json:"repetition_detection" description:"End a reply that repeats itself."`
		ResponseFormat   *formatBody     `json:"response_format" description:"Format of the reply's text."`
		PromptLogprobs   *int32          `json:"prompt_logprobs" minimum:"-1" description:"Number of alternatives of each prompt token; -1: all."`
		Echo             *bool           `json:"echo" default:"false" description:"Start the reply with the prompt; in a chat, with its last message."`
		Truncate         *int32          `json:"truncate_prompt_tokens" minimum:"-1" description:"Keep only this many last tokens of the prompt; -1: as many as fit."`
		Priority         *int32          `json:"priority" default:"0" description:"Lower values run first; needs priority scheduling."`
		CacheSalt        *string         `json:"cache_salt" minLength:"1" description:"Share cached prefixes only with requests that have the same salt."`
		ReturnTokenIDs   *bool           `json:"return_token_ids" default:"false" description:"Return the token ids of prompt and reply."`
		TokensAsIDs      *bool           `json:"return_tokens_as_token_ids" default:"false" description:"Name tokens token_id:N in logprobs."`
		BeamSearch       *bool           `json:"use_beam_search" default:"false" description:"Search for the most likely reply with n beams."`
		User             json.RawMessage `json:"user" description:"Accepted, without effect."`
		Metadata         json.RawMessage `json:"metadata" description:"Accepted, without effect."`
		Store            json.RawMessage `json:"store" description:"Accepted, without effect."`
		ServiceTier      json.RawMessage `json:"service_tier" description:"Accepted, without effect."`
		PromptCacheKey   json.RawMessage `json:"prompt_cache_key" description:"Accepted, without effect."`
		Retention        json.RawMessage `json:"prompt_cache_retention" description:"Accepted, without effect."`
		SafetyIdentifier json.RawMessage `json:"safety_identifier" description:"Accepted, without effect."`
		LengthPenalty    *float64        `json:"length_penalty" default:"1" description:"With beam search: values above 0 prefer longer replies."`
		Verbosity        json.RawMessage `json:"verbosity" description:"Accepted, without effect."`
		Modalities       json.RawMessage `json:"modalities" description:"Accepted, without effect."`
		Prediction       json.RawMessage `json:"prediction" description:"Accepted, without effect."`
	}

	repetitionBody struct {
		Min   *int32 `json:"min_pattern_size"`
		Max   *int32 `json:"max_pattern_size"`
		Count *int32 `json:"min_count"`
	}

	samplingBody struct {
		Temperature       *float64 `json:"temperature" minimum:"0" description:"0: always the most likely token; absent: the model's default."`
		TopP              *float64 `json:"top_p" exclusiveMinimum:"0" maximum:"1" description:"Keep the most likely tokens whose total probability is this share."`
		TopK              *int32   `json:"top_k" minimum:"-1" description:"Keep the k most likely tokens; 0 and -1: all."`
		MinP              *float64 `json:"min_p" minimum:"0" maximum:"1" description:"Drop tokens whose probability is below this share of the highest."`
		RepetitionPenalty *float64 `json:"repetition_penalty" exclusiveMinimum:"0" description:"Values above 1 make tokens of prompt and reply less likely."`
	}

	penaltyBody struct {
		Frequency *float64           `json:"frequency_penalty" default:"0" minimum:"-2" maximum:"2" description:"Subtracted from a token's logit for each time that the reply has the token."`
		Presence  *float64           `json:"presence_penalty" default:"0" minimum:"-2" maximum:"2" description:"Subtracted once from the logit of each token in the reply."`
		LogitBias map[string]float64 `json:"logit_bias" description:"Maps token ids to values added to their logits, clamped to [-100, 100]."`
	}

	tokenBody struct {
		AllowedTokenIDs   []int32      `json:"allowed_token_ids" minItems:"1" description:"Allow only these tokens in the reply."`
		BadWords          *stringsBody `json:"bad_words" description:"Texts that the reply must not contain."`
		SkipSpecialTokens *bool        `json:"skip_special_tokens" default:"true" description:"Leave special tokens out of the text."`
		Spaces            *bool        `json:"spaces_between_special_tokens" default:"true" description:"Accepted, without effect."`
	}

	// templateBody has the variables of a chat template other than messages and tools.
	templateBody struct {
		AddGenerationPrompt *bool          `json:"add_generation_prompt" default:"true" description:"End the prompt with the start of the assistant's turn."`
		ContinueFinal       *bool          `json:"continue_final_message" default:"false" description:"Continue the last message; not with add_generation_prompt."`
		Template            *string        `json:"chat_template" description:"Replaces the model's template; the profile must allow it."`
		TemplateKwargs      map[string]any `json:"chat_template_kwargs" description:"Variables of the template."`
		ReasoningEffort     *string        `json:"reasoning_effort" enum:"none,minimal,low,medium,high,xhigh,max" description:"Reasoning effort, for templates that use it."`
		Documents           []any          `json:"documents" description:"Documents for the template."`
	}

	// mediaBody has options for the media of a conversation.
	mediaBody struct {
		ProcessorKwargs map[string]any `json:"mm_processor_kwargs" description:"Options of the model's processor of images, such as max_soft_tokens; without effect without media. The profile must allow it."`
		MediaKwargs     map[string]any `json:"media_io_kwargs" description:"Options for reading media, by kind; without effect without media. The profile must allow it."`
	}

	structureBody struct {
		Structured    *constraintBody `json:"structured_outputs" description:"Constraint of the reply: exactly one kind."`
		GuidedJSON    json.RawMessage `json:"guided_json" deprecated:"true" description:"structured_outputs.json."`
		GuidedRegex   *string         `json:"guided_regex" deprecated:"true" description:"structured_outputs.regex."`
		GuidedChoice  *stringsBody    `json:"guided_choice" deprecated:"true" description:"structured_outputs.choice."`
		GuidedGrammar *string         `json:"guided_grammar" deprecated:"true" description:"structured_outputs.grammar."`
		GuidedObject  *bool           `json:"guided_json_object" deprecated:"true" description:"structured_outputs.json_object."`
		GuidedTag     json.RawMessage `json:"guided_structural_tag" deprecated:"true" description:"structured_outputs.structural_tag."`
		GuidedTight   *bool           `json:"guided_disable_any_whitespace" deprecated:"true"`
		GuidedClosed  *bool           `json:"guided_disable_additional_properties" deprecated:"true"`
		GuidedWhite   *string         `json:"guided_whitespace_pattern" deprecated:"true"`
		GuidedBackend json.RawMessage `json:"guided_decoding_backend" deprecated:"true" description:"Accepted, without effect."`
	}

	constraintBody struct {
		JSON       json.RawMessage `json:"json" description:"A JSON Schema, as an object or a string."`
		Regex      *string         `json:"regex" minLength:"1"`
		Choice     *stringsBody    `json:"choice" description:"One of these texts."`
		Grammar    *string         `json:"grammar" minLength:"1" description:"A grammar in Lark's syntax."`
		JSONObject *bool           `json:"json_object" description:"Any JSON object."`
		Tag        json.RawMessage `json:"structural_tag"`
		Tight      *bool           `json:"disable_any_whitespace" default:"false"`
		Closed     *bool           `json:"disable_additional_properties" default:"false"`
		White      *string         `json:"whitespace_pattern"`
	}

	// responsesBody is a request of /v1/responses.
	responsesBody struct {
		Input itemsBody `json:"input" required:"true" description:"A text, or the items of a conversation."`
		askBody
		Instructions *string         `json:"instructions" description:"A system message before the conversation."`
		MaxOutput    *int32          `json:"max_output_tokens" minimum:"1" description:"Maximum number of tokens of the reply."`
		MaxToolCalls *int32          `json:"max_tool_calls"`
		Previous     *string         `json:"previous_response_id" description:"Id of a stored response to continue."`
		Background   *bool           `json:"background" default:"false"`
		Debug        *bool           `json:"enable_response_messages" default:"false" description:"Also return the messages and tokens."`
		Kwargs       map[string]any  `json:"chat_template_kwargs" description:"Variables of the chat template."`
		Reasoning    map[string]any  `json:"reasoning" description:"effort and summary."`
		Text         map[string]any  `json:"text" description:"format: constraint of the reply's text."`
		Include      *stringsBody    `json:"include" description:"Additional contents of the reply."`
		TopLogprobs  *int32          `json:"top_logprobs" minimum:"0"`
		Truncation   *string         `json:"truncation" enum:"auto,disabled"`
		Tools        []any           `json:"tools" description:"Functions that the model may call."`
		ToolChoice   json.RawMessage `json:"tool_choice"`
		Parallel     *bool           `json:"parallel_tool_calls" default:"true"`
		Conversation json.RawMessage `json:"conversation" description:"Refused: send the items themselves."`
		Prompt       json.RawMessage `json:"prompt" description:"Refused: send the text itself."`
	}
)
