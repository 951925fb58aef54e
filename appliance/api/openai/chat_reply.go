package openai

import "vapp.dev/appliance/chat"

type chatReply struct {
	ID                string                     `json:"id"`
	Object            string                     `json:"object"`
	Created           int64                      `json:"created"`
	Model             string                     `json:"model"`
	Choices           []chatChoice               `json:"choices"`
	ServiceTier       *string                    `json:"service_tier"`
	SystemFingerprint *string                    `json:"system_fingerprint"`
	Usage             *usage                     `json:"usage"`
	PromptLogprobs    []map[string]promptLogprob `json:"prompt_logprobs"`
	PromptTokenIDs    []int32                    `json:"prompt_token_ids"`
	KVTransferParams  *struct{}                  `json:"kv_transfer_params"`
}

type chatChoice struct {
	Index        int              `json:"index"`
	Message      chatMessage      `json:"message"`
	Logprobs     *chatLogprobList `json:"logprobs"`
	FinishReason string           `json:"finish_reason"`
	StopReason   any              `json:"stop_reason"`
	TokenIDs     []int32          `json:"token_ids"`
}

// chatMessage has keys that are always null in a text reply, since clients expect them.
type chatMessage struct {
	Role         string     `json:"role"`
	Content      *string    `json:"content"`
	Refusal      *string    `json:"refusal"`
	Annotations  *struct{}  `json:"annotations"`
	Audio        *struct{}  `json:"audio"`
	FunctionCall *struct{}  `json:"function_call"`
	ToolCalls    []toolCall `json:"tool_calls"`
	Reasoning    *string    `json:"reasoning"`
	Old          *string    `json:"reasoning_content,omitempty"`
}

// Reply returns the body of a reply that is not streamed.
func (r *ChatRequest) Reply(run *chat.Run, replies []chat.Reply) []byte {
	return encode(r.reply(run, replies))
}

func (r *ChatRequest) reply(run *chat.Run, replies []chat.Reply) chatReply {
	w := &r.Wire
	out := chatReply{
		ID: run.ID, Object: "chat.completion", Created: run.Created, Model: run.Model, Usage: usageOf(run.Usage()),
		PromptLogprobs: w.prompt(run.Prompts[0].Logprobs),
	}
	if w.ReturnTokenIDs {
		out.PromptTokenIDs = run.Prompts[0].Tokens
	}
	for _, reply := range replies {
		c := chatChoice{
			Index: reply.Choice, Message: w.message(run, reply),
			Logprobs: w.chat(reply.Logprobs), FinishReason: reply.Finish, StopReason: reply.Stop,
		}
		if w.ReturnTokenIDs {
			c.TokenIDs = notNil(reply.Tokens)
		}
		out.Choices = append(out.Choices, c)
	}
	return out
}

// toolCall is a call in a reply that is not streamed.
type toolCall struct {
	ID       string       `json:"id"`
	Type     string       `json:"type"`
	Function toolFunction `json:"function"`
}

type toolFunction struct {
	Name      string `json:"name"`
	Arguments string `json:"arguments"`
}

// message returns the assistant's message. Empty content is null if there is reasoning
// or a call.
func (w *Wire) message(run *chat.Run, r chat.Reply) chatMessage {
	text := run.EchoPrefix + r.Text
	m := chatMessage{Role: run.Role, Content: &text, ToolCalls: []toolCall{}}
	if r.Reasoning != "" {
		m.Reasoning = &r.Reasoning
	}
	if w.ReasoningContent {
		m.Old = m.Reasoning
	}
	for _, c := range r.Calls {
		m.ToolCalls = append(m.ToolCalls, toolCall{c.ID, "function", toolFunction{c.Name, c.Arguments}})
	}
	if text == "" && (m.Reasoning != nil || len(m.ToolCalls) > 0) {
		m.Content = nil
	}
	return m
}
