package openai

import (
	"maps"
	"strconv"

	"vapp.dev/appliance/chat"
)

// maxBatch is the maximum number of conversations of a batch. Each becomes a request
// in the engine's queue.
const maxBatch = 1024

// BatchRequest is a decoded body of POST /v1/chat/completions/batch: one chat request
// for each conversation.
type BatchRequest struct {
	Requests []*ChatRequest
}

// batchLimits lists fields of which a batch accepts only one value, with the message
// for another one.
var batchLimits = []struct{ name, only, why string }{
	{"stream", "false", "Batch chat completions do not support streaming: `stream` must be false."},
	{"use_beam_search", "false", "Batch chat completions do not support beam search: `use_beam_search` must be false."},
	{"n", "1", "Batch chat completions do not support n > 1: `n` must be 1."},
	{"tools", "[]", "Batch chat completions do not support tools: leave `tools` out."},
	{"tool_choice", `"none"`, "Batch chat completions do not support tools: leave `tool_choice` out."},
	{"prompt_logprobs", "", "Batch chat completions do not support `prompt_logprobs`: leave it out."},
	{"echo", "false", "Batch chat completions do not support `echo`: leave it out."},
}

// DecodeBatch reads the body of POST /v1/chat/completions/batch. Its errors are
// *chat.Error.
func DecodeBatch(b []byte) (*BatchRequest, error) {
	f, bad := body(b)
	if bad != nil {
		return nil, bad
	}
	for _, l := range batchLimits {
		if v, ok := f.get(l.name); ok && string(v) != l.only {
			f.fail(chat.Errorf(chat.Invalid, l.name, "%s", l.why))
		}
	}
	list := f.list("messages")
	switch {
	case !f.has("messages"):
		f.fail(malformed("messages", "Field required: `messages`."))
	case len(list) == 0:
		f.fail(malformed("messages", "`messages` must be an array of at least one conversation."))
	case len(list) > maxBatch:
		f.fail(chat.Errorf(chat.Invalid, "messages", "`messages` may hold at most %d conversations, got %d.", maxBatch, len(list)))
	}
	if f.err != nil {
		return nil, f.err
	}
	f.raw["messages"] = list[0]
	first, bad := decodeChat(newFields("", f.raw))
	if bad != nil {
		return nil, conversationError(0, bad)
	}
	first.setBatchDefaults()
	out := &BatchRequest{Requests: []*ChatRequest{first}}
	for i, raw := range list[1:] {
		own := maps.Clone(f.raw)
		own["messages"] = raw
		one := newFields("", own)
		r, c := *first, *first.Ask.Chat
		r.Wire.Unknown, r.Wire.Deprecated = nil, nil // logged with the first request
		c.Messages, r.Ask.Chat = messages(one), &c
		mediaKwargs(one, &c)
		if one.err != nil {
			return nil, conversationError(i+1, one.err)
		}
		out.Requests = append(out.Requests, &r)
	}
	return out, nil
}

func conversationError(i int, e *chat.Error) *chat.Error {
	e.Message = "Conversation " + strconv.Itoa(i) + ": " + e.Message
	return e
}

// setBatchDefaults sets the defaults that differ from those of a chat.
func (r *ChatRequest) setBatchDefaults() {
	temperature, all := 0.7, 1.0
	if r.Ask.Temperature == nil {
		r.Ask.Temperature = &temperature
	}
	if r.Ask.TopP == nil {
		r.Ask.TopP = &all
	}
}

// Reply returns one reply to all conversations: choice i answers conversation i.
func (r *BatchRequest) Reply(runs []*chat.Run, replies []chat.Reply) []byte {
	var total chat.Usage
	out := chatReply{ID: runs[0].ID, Object: "chat.completion", Created: runs[0].Created, Model: runs[0].Model}
	for i, run := range runs {
		one := r.Requests[i].reply(run, replies[i:i+1])
		one.Choices[0].Index = i
		out.Choices = append(out.Choices, one.Choices...)
		u := run.Usage()
		total.Prompt, total.Completion = total.Prompt+u.Prompt, total.Completion+u.Completion
		total.Cached, total.ReportCached = total.Cached+u.Cached, u.ReportCached
	}
	out.Usage = usageOf(total)
	return encode(out)
}
