package openai

import "vapp.dev/appliance/chat"

type textReply struct {
	ID                string       `json:"id"`
	Object            string       `json:"object"`
	Created           int64        `json:"created"`
	Model             string       `json:"model"`
	Choices           []textChoice `json:"choices"`
	ServiceTier       *string      `json:"service_tier"`
	SystemFingerprint *string      `json:"system_fingerprint"`
	Usage             *usage       `json:"usage"`
	KVTransferParams  *struct{}    `json:"kv_transfer_params"`
}

type textChoice struct {
	Index          int                        `json:"index"`
	Text           string                     `json:"text"`
	Logprobs       *textLogprobs              `json:"logprobs"`
	FinishReason   *string                    `json:"finish_reason"`
	StopReason     any                        `json:"stop_reason"`
	TokenIDs       []int32                    `json:"token_ids"`
	PromptLogprobs []map[string]promptLogprob `json:"prompt_logprobs"`
	PromptTokenIDs []int32                    `json:"prompt_token_ids"`
}

// Reply returns the body of a reply that is not streamed.
func (r *CompletionRequest) Reply(run *chat.Run, replies []chat.Reply) []byte {
	w := &r.Wire
	out := textReply{ID: run.ID, Object: "text_completion", Created: run.Created, Model: run.Model, Usage: usageOf(run.Usage())}
	for _, reply := range replies {
		p := run.Prompts[reply.Prompt]
		c := textChoice{
			Index: reply.Choice, Text: reply.Text, FinishReason: &reply.Finish, StopReason: reply.Stop,
			Logprobs: w.text(reply.Logprobs), PromptLogprobs: w.prompt(p.Logprobs),
		}
		if w.ReturnTokenIDs {
			c.TokenIDs, c.PromptTokenIDs = notNil(reply.Tokens), p.Tokens
		}
		out.Choices = append(out.Choices, c)
	}
	return encode(out)
}

func notNil(ids []int32) []int32 {
	if ids == nil {
		return []int32{}
	}
	return ids
}

// textChunk is one record of a stream. All its keys are always present.
type textChunk struct {
	ID      string            `json:"id"`
	Object  string            `json:"object"`
	Created int64             `json:"created"`
	Model   string            `json:"model"`
	Choices []textChunkChoice `json:"choices"`
	Usage   *usage            `json:"usage"`
}

type textChunkChoice struct {
	Index          int           `json:"index"`
	Text           string        `json:"text"`
	Logprobs       *textLogprobs `json:"logprobs"`
	FinishReason   *string       `json:"finish_reason"`
	StopReason     any           `json:"stop_reason"`
	PromptTokenIDs []int32       `json:"prompt_token_ids"`
	TokenIDs       []int32       `json:"token_ids"`
}

// TextStream writes the records of one streamed completion.
type TextStream struct {
	run   *chat.Run
	wire  *Wire
	begun []bool // the choice's first chunk was written
}

// Stream starts a streamed reply.
func (r *CompletionRequest) Stream(run *chat.Run) Stream {
	return &TextStream{run: run, wire: &r.Wire, begun: make([]bool, run.Choices())}
}

// Begin writes nothing, since a completion has no role.
func (s *TextStream) Begin(buf []byte) []byte { return buf }

// Add writes one delta.
func (s *TextStream) Add(buf []byte, d chat.Delta) []byte {
	c := textChunkChoice{Index: d.Choice, Text: d.Text, StopReason: d.Stop, Logprobs: s.wire.text(d.Logprobs)}
	if s.wire.ReturnTokenIDs {
		c.TokenIDs = notNil(d.Tokens)
		if !s.begun[d.Choice] {
			c.PromptTokenIDs = s.run.Prompts[s.run.PromptOf(d.Choice)].Tokens
		}
	}
	if d.Finish != "" {
		c.FinishReason = &d.Finish
	}
	if d.Text == "" && d.Finish == "" && c.Logprobs == nil && len(c.TokenIDs) == 0 {
		return buf
	}
	s.begun[d.Choice] = true
	out := textChunk{ID: s.run.ID, Object: "text_completion", Created: s.run.Created, Model: s.run.Model, Choices: []textChunkChoice{c}}
	if s.wire.continuous() {
		out.Usage = usageOf(s.run.Usage())
	}
	return record(buf, out)
}

// End writes the usage if requested, then the last record.
func (s *TextStream) End(buf []byte) []byte {
	if s.wire.IncludeUsage {
		buf = record(buf, textChunk{
			ID: s.run.ID, Object: "text_completion", Created: s.run.Created, Model: s.run.Model,
			Choices: []textChunkChoice{}, Usage: usageOf(s.run.Usage()),
		})
	}
	return append(buf, done...)
}
