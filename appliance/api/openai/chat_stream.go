package openai

import "vapp.dev/appliance/chat"

// chatChunk is one record of a stream. Keys without a value are absent.
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
	StopReason   *any             `json:"stop_reason,omitempty"` // present in a choice's last chunk, possibly null
	TokenIDs     []int32          `json:"token_ids,omitempty"`
}

type chatDelta struct {
	Role      string      `json:"role,omitempty"`
	Reasoning *string     `json:"reasoning,omitempty"`
	Old       *string     `json:"reasoning_content,omitempty"`
	Content   *string     `json:"content,omitempty"`
	ToolCalls []callDelta `json:"tool_calls,omitempty"`
}

// callDelta is new text of a call. Only the first delta of a call has id, type and name.
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

// delta converts the new text and calls of a choice.
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

// Begin writes the role of each choice and, with echo, the last message of the prompt.
func (s *ChatStream) Begin(buf []byte) []byte {
	none := ""
	for i := range s.run.Choices() {
		c := s.chunk(chatChunkChoice{Index: i, Delta: chatDelta{Role: s.run.Role, Content: &none}})
		if i == 0 && s.wire.ReturnTokenIDs {
			c.PromptTokenIDs = s.run.Prompts[0].Tokens
		}
		buf = record(buf, s.withoutCompletion(c))
	}
	if s.run.EchoPrefix == "" {
		return buf
	}
	for i := range s.run.Choices() {
		c := s.chunk(chatChunkChoice{Index: i, Delta: chatDelta{Content: &s.run.EchoPrefix}})
		buf = record(buf, s.withoutCompletion(c))
	}
	return buf
}

// withoutCompletion zeroes the completion tokens of the usage in initial chunks.
func (s *ChatStream) withoutCompletion(c chatChunk) chatChunk {
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

// End writes the usage if requested, then the last record.
func (s *ChatStream) End(buf []byte) []byte {
	if s.wire.IncludeUsage {
		c := s.chunk()
		c.Choices, c.Usage = []chatChunkChoice{}, usageOf(s.run.Usage())
		buf = record(buf, c)
	}
	return append(buf, done...)
}
