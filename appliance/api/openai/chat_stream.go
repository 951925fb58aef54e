package openai

import "vapp.dev/appliance/chat"

// chatChunk is one record of a stream; keys that were never set are absent.
type chatChunk struct {
	ID             string            `json:"id"`
	Object         string            `json:"object"`
	Created        int64             `json:"created"`
	Model          string            `json:"model"`
	Choices        []chatChunkChoice `json:"choices"`
	PromptTokenIDs []int32           `json:"prompt_token_ids,omitempty"`
	Usage          *usage            `json:"usage,omitempty"`
}

type chatChunkChoice struct {
	Index        int              `json:"index"`
	Delta        chatDelta        `json:"delta"`
	Logprobs     *chatLogprobList `json:"logprobs"`
	FinishReason *string          `json:"finish_reason"`
	StopReason   *any             `json:"stop_reason,omitempty"` // set, perhaps to null, in a choice's last chunk
	TokenIDs     []int32          `json:"token_ids,omitempty"`
}

type chatDelta struct {
	Role      string      `json:"role,omitempty"`
	Reasoning *string     `json:"reasoning,omitempty"`
	Old       *string     `json:"reasoning_content,omitempty"`
	Content   *string     `json:"content,omitempty"`
	ToolCalls []callDelta `json:"tool_calls,omitempty"`
}

// callDelta is what a call has gained; id, type and name come in its first one.
type callDelta struct {
	Index    int           `json:"index"`
	ID       string        `json:"id,omitempty"`
	Type     string        `json:"type,omitempty"`
	Function functionDelta `json:"function"`
}

type functionDelta struct {
	Name      string `json:"name,omitempty"`
	Arguments string `json:"arguments"`
}

// delta is what a choice has gained, without its tokens.
func (w *Wire) delta(d *chat.Delta) chatDelta {
	var out chatDelta
	if d.Reasoning != "" {
		out.Reasoning = &d.Reasoning
	}
	if w.ReasoningContent {
		out.Old = out.Reasoning
	}
	if d.Text != "" {
		out.Content = &d.Text
	}
	for _, c := range d.Calls {
		x := callDelta{Index: c.Index, ID: c.ID, Function: functionDelta{c.Name, c.Arguments}}
		if c.ID != "" {
			x.Type = "function"
		}
		out.ToolCalls = append(out.ToolCalls, x)
	}
	return out
}

// ChatStream writes the records of one streamed chat.
type ChatStream struct {
	run  *chat.Run
	wire *Wire
}

// Stream starts a streamed reply.
func (r *ChatRequest) Stream(run *chat.Run) Stream { return &ChatStream{run: run, wire: &r.Wire} }

func (s *ChatStream) chunk(c ...chatChunkChoice) chatChunk {
	out := chatChunk{ID: s.run.ID, Object: "chat.completion.chunk", Created: s.run.Created, Model: s.run.Model, Choices: c}
	if s.wire.continuous() {
		out.Usage = usageOf(s.run.Usage())
	}
	return out
}

// Begin says who speaks, once a choice, and with echo what was there before.
func (s *ChatStream) Begin(buf []byte) []byte {
	none := ""
	for i := range s.run.Choices() {
		c := s.chunk(chatChunkChoice{Index: i, Delta: chatDelta{Role: s.run.Role, Content: &none}})
		if i == 0 && s.wire.ReturnTokenIDs {
			c.PromptTokenIDs = s.run.Prompts[0].Tokens
		}
		buf = record(buf, s.untold(c))
	}
	if s.run.EchoPrefix == "" {
		return buf
	}
	for i := range s.run.Choices() {
		c := s.chunk(chatChunkChoice{Index: i, Delta: chatDelta{Content: &s.run.EchoPrefix}})
		buf = record(buf, s.untold(c))
	}
	return buf
}

// untold leaves tokens out of the usage that no chunk has told yet.
func (s *ChatStream) untold(c chatChunk) chatChunk {
	if c.Usage != nil {
		c.Usage.CompletionTokens, c.Usage.TotalTokens = 0, c.Usage.PromptTokens
	}
	return c
}

// Add writes one delta.
func (s *ChatStream) Add(buf []byte, d chat.Delta) []byte {
	c := chatChunkChoice{Index: d.Choice, Delta: s.wire.delta(&d), Logprobs: s.wire.chat(d.Logprobs)}
	if s.wire.ReturnTokenIDs {
		c.TokenIDs = d.Tokens
	}
	if d.Finish != "" {
		c.FinishReason, c.StopReason = &d.Finish, &d.Stop
	}
	if d.Text == "" && d.Reasoning == "" && len(d.Calls) == 0 && d.Finish == "" && c.Logprobs == nil && c.TokenIDs == nil {
		return buf
	}
	return record(buf, s.chunk(c))
}

// End writes the usage if it was asked for, and the last record.
func (s *ChatStream) End(buf []byte) []byte {
	if s.wire.IncludeUsage {
		c := s.chunk()
		c.Choices, c.Usage = []chatChunkChoice{}, usageOf(s.run.Usage())
		buf = record(buf, c)
	}
	return append(buf, done...)
}
