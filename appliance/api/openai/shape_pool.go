package openai

import "encoding/json"

// EmbeddingShape returns the shape of POST /v1/embeddings.
func EmbeddingShape() Shape {
	return Shape{Request: []any{poolBody{}, poolChatBody{}}, Reply: vectorReply{}}
}

// PoolingShape returns the shape of POST /pooling.
func PoolingShape() Shape {
	return Shape{Request: []any{taskBody{}, taskChatBody{}}, Reply: vectorReply{}}
}

// ClassifyShape returns the shape of POST /classify.
func ClassifyShape() Shape {
	return Shape{Request: []any{poolBody{}, poolChatBody{}}, Reply: classReply{}}
}

// ScoreShape returns the shape of POST /score.
func ScoreShape() Shape { return Shape{Request: []any{scoreBody{}}, Reply: scoreReply{}} }

// RerankShape returns the shape of POST /rerank.
func RerankShape() Shape { return Shape{Request: []any{rerankBody{}}, Reply: rankReply{}} }

// Request bodies of pooling models.
type (
	poolBody struct {
		Input promptBody `json:"input" required:"true" description:"One or several inputs, as text or token ids."`
		vectorBody
		sharedPoolBody
		AddSpecialTokens *bool `json:"add_special_tokens" default:"true" description:"Add the tokenizer's special tokens."`
	}

	poolChatBody struct {
		Messages []messageBody `json:"messages" required:"true" nullable:"false" minItems:"1" description:"A conversation, which the chat template renders to one input."`
		templateBody
		vectorBody
		sharedPoolBody
		AddSpecialTokens *bool `json:"add_special_tokens" default:"false" description:"Add the tokenizer's special tokens."`
	}

	taskBody struct {
		poolBody
		Task *string `json:"task" enum:"embed,classify,token_embed,token_classify,score,encode" description:"Absent: token_embed or token_classify, depending on the model."`
	}

	taskChatBody struct {
		poolChatBody
		Task *string `json:"task" enum:"embed,classify,token_embed,token_classify,score,encode" description:"Absent: token_embed or token_classify, depending on the model."`
	}

	scoreBody struct {
		Text1     json.RawMessage `json:"text_1" description:"One or several texts."`
		Text2     json.RawMessage `json:"text_2" description:"As many texts as text_1, or any number if text_1 is one text."`
		Data1     json.RawMessage `json:"data_1" description:"Another name of text_1."`
		Data2     json.RawMessage `json:"data_2" description:"Another name of text_2."`
		Queries   json.RawMessage `json:"queries" description:"Another name of text_1."`
		Documents json.RawMessage `json:"documents" description:"Another name of text_2."`
		Items     json.RawMessage `json:"items" description:"Another name of text_2."`
		pairBody
	}

	rerankBody struct {
		Query     json.RawMessage   `json:"query" required:"true" description:"A text."`
		Documents []json.RawMessage `json:"documents" required:"true" nullable:"false" minItems:"1" description:"Texts."`
		TopN      *int32            `json:"top_n" default:"0" minimum:"0" description:"Number of best results to return; 0: all."`
		pairBody
	}

	pairBody struct {
		sharedPoolBody
		AddSpecialTokens *bool          `json:"add_special_tokens" default:"true" description:"Add the tokenizer's special tokens."`
		Template         *string        `json:"chat_template" description:"Renders messages of roles query and document; the profile must allow it."`
		TemplateKwargs   map[string]any `json:"chat_template_kwargs" description:"Variables of the template."`
	}

	vectorBody struct {
		Dimensions *int32  `json:"dimensions" minimum:"1" description:"Truncate embeddings, for models trained for this (Matryoshka)."`
		Encoding   *string `json:"encoding_format" enum:"float,base64,bytes,bytes_only" default:"float" description:"base64 and bytes: the numbers in binary."`
		Dtype      *string `json:"embed_dtype" enum:"float,float32,float16,bfloat16,fp8_e4m3,fp8_e5m2" default:"float32" description:"Of base64 and bytes."`
		Endianness *string `json:"endianness" enum:"native,little,big" default:"native" description:"Of base64 and bytes."`
	}

	sharedPoolBody struct {
		Model      *string         `json:"model" description:"A served name; absent or empty: the first."`
		RequestID  *string         `json:"request_id" description:"Id of the request, unless the header X-Request-Id is set."`
		Truncate   *int32          `json:"truncate_prompt_tokens" minimum:"-1" description:"Keep only this many tokens of a text; -1: as many as fit."`
		Side       *string         `json:"truncation_side" enum:"left,right" default:"right" description:"The end from which tokens are removed."`
		Activation *bool           `json:"use_activation" description:"Normalize embeddings, or convert class logits to probabilities; absent: the model's default."`
		Normalize  *bool           `json:"normalize" deprecated:"true" description:"use_activation."`
		Activate   *bool           `json:"activation" deprecated:"true" description:"use_activation."`
		Softmax    *bool           `json:"softmax" deprecated:"true" description:"use_activation."`
		Priority   *int32          `json:"priority" default:"0" description:"Lower values run first; needs priority scheduling."`
		CacheSalt  *string         `json:"cache_salt" minLength:"1" description:"Share cached prefixes only with requests that have the same salt."`
		Media      json.RawMessage `json:"mm_processor_kwargs" description:"Refused: the model reads text."`
		User       json.RawMessage `json:"user" description:"Accepted, without effect."`
	}
)
