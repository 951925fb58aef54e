package openai

import (
	"vapp.dev/appliance/chat"
)

// GenerateRequest is a decoded body of POST /inference/v1/generate, which continues
// token ids with token ids.
type GenerateRequest struct {
	Ask  chat.RequestParams
	Wire Wire
}

// DecodeGenerate reads the body of POST /inference/v1/generate, in the form that the
// render routes return. Its errors are *chat.Error.
func DecodeGenerate(b []byte) (*GenerateRequest, error) {
	f, bad := body(b)
	if bad != nil {
		return nil, bad
	}
	return readGenerate(f)
}

func readGenerate(f *fields) (*GenerateRequest, error) {
	r := &GenerateRequest{}
	envelope(f, &r.Ask, &r.Wire)
	ids := f.ints("token_ids")
	if len(ids) == 0 {
		f.fail(malformed("token_ids", "Field required: `token_ids`, at least one."))
	}
	r.Ask.Prompts, r.Ask.Rendered = []chat.Prompt{{Tokens: ids}}, !f.flag("reasoning_ended", false)
	if f.has("features") {
		f.fail(chat.Errorf(chat.Invalid, "features", "`features` are of multimodal input, and this is not a multimodal model."))
	}
	f.seen["kv_transfer_params"] = true
	if raw := f.object("sampling_params"); raw != nil {
		generateSampling(newFields("sampling_params.", raw), f, r)
	} else {
		f.fail(malformed("sampling_params", "Field required: `sampling_params`."))
	}
	if f.err != nil {
		return nil, f.err
	}
	r.Wire.Unknown = f.unknown()
	return r, nil
}

// generateSampling reads p, the sampling_params of f. Absent parameters have neutral
// values: the render routes have already applied the server's defaults.
func generateSampling(p, f *fields, r *GenerateRequest) {
	a := &r.Ask
	sampling(p, a)
	a.Structure = only(p, outputs(p))
	a.Sampling = a.Sampling.Neutral()
	most := p.intOr("max_tokens", defaultMaxTokens)
	a.MaxTokens = &most
	if n := p.intOpt("logprobs"); n != nil {
		if *n < -1 {
			p.fail(malformed("logprobs", "`logprobs` must be a positive value."))
		}
		a.Logprobs, r.Wire.TopLogprobs = n, *n
	}
	r.Wire.TokensAsIDs, r.Wire.PromptLogprobs = true, a.PromptLogprobs
	if p.err == nil && a.PromptLogprobs != nil {
		checkPromptLogprobs(p, *a.PromptLogprobs, r.Wire.Stream)
	}
	f.failIf(p.err)
	for _, name := range p.unknown() {
		r.Wire.Unknown = append(r.Wire.Unknown, p.at+name)
	}
}

type generateReply struct {
	RequestID        string                     `json:"request_id"`
	Choices          []generateChoice           `json:"choices"`
	PromptLogprobs   []map[string]promptLogprob `json:"prompt_logprobs"`
	KVTransferParams *struct{}                  `json:"kv_transfer_params"`
}

type generateChoice struct {
	Index        int              `json:"index"`
	Logprobs     *chatLogprobList `json:"logprobs"`
	FinishReason *string          `json:"finish_reason"`
	TokenIDs     []int32          `json:"token_ids"`
}

// Reply returns the body of a reply that is not streamed.
func (r *GenerateRequest) Reply(run *chat.Run, replies []chat.Reply) []byte {
	out := generateReply{RequestID: run.ID, PromptLogprobs: r.Wire.prompt(run.Prompts[0].Logprobs)}
	for _, reply := range replies {
		out.Choices = append(out.Choices, r.choice(reply.Delta))
	}
	return encode(out)
}

func (r *GenerateRequest) choice(d chat.Delta) generateChoice {
	c := generateChoice{Index: d.Choice, Logprobs: r.Wire.chat(d.Logprobs), TokenIDs: notNil(d.Tokens)}
	if d.Finish != "" {
		c.FinishReason = &d.Finish
	}
	return c
}

// generateChunk is one record of a stream.
type generateChunk struct {
	RequestID string           `json:"request_id"`
	Choices   []generateChoice `json:"choices"`
	Usage     *usage           `json:"usage,omitempty"`
}

// GenerateStream writes the records of one streamed reply.
type GenerateStream struct {
	run *chat.Run
	r   *GenerateRequest
}

// Stream starts a streamed reply.
func (r *GenerateRequest) Stream(run *chat.Run) Stream { return &GenerateStream{run, r} }

// Begin writes nothing.
func (s *GenerateStream) Begin(buf []byte) []byte { return buf }

// Add writes one delta.
func (s *GenerateStream) Add(buf []byte, d chat.Delta) []byte {
	if len(d.Tokens) == 0 && d.Finish == "" {
		return buf
	}
	c := generateChunk{RequestID: s.run.ID, Choices: []generateChoice{s.r.choice(d)}}
	if s.r.Wire.continuous() {
		c.Usage = usageOf(s.run.Usage())
	}
	return record(buf, c)
}

// End writes the usage if requested, then the last record.
func (s *GenerateStream) End(buf []byte) []byte {
	if s.r.Wire.IncludeUsage {
		buf = record(buf, generateChunk{RequestID: s.run.ID, Choices: []generateChoice{}, Usage: usageOf(s.run.Usage())})
	}
	return append(buf, done...)
}
