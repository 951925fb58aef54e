package bench

import (
	"bytes"
	"encoding/json"
	"fmt"

	"vapp.dev/tools/bench/workload"
)

// Backend is a request format: which API a request uses.
type Backend string

// The request formats.
const (
	Completions Backend = "openai"
	Chat        Backend = "openai-chat"
	Embeddings  Backend = "openai-embeddings"
)

// backends lists the accepted names, each with its format and route.
var backends = []struct {
	name     string
	form     Backend
	endpoint string
}{
	{"openai", Completions, "/v1/completions"},
	{"vllm", Completions, "/v1/completions"},
	{"openai-chat", Chat, "/v1/chat/completions"},
	{"openai-embeddings", Embeddings, "/v1/embeddings"},
}

// FindBackend returns the request format with this name and its route.
func FindBackend(name string) (Backend, string, error) {
	names := ""
	for i, b := range backends {
		if b.name == name {
			return b.form, b.endpoint, nil
		}
		if i > 0 {
			names += ", "
		}
		names += b.name
	}
	return "", "", fmt.Errorf("backend %q: there are %s", name, names)
}

// RequestParams has the settings of all requests.
type RequestParams struct {
	Backend Backend
	// Model is the model name in the request.
	Model     string
	IgnoreEOS bool
	// Logprobs is the number of log probabilities per token; 0: none.
	Logprobs int
	// Sampling are options that the user set, such as temperature.
	Sampling []Option
	// Extra are keys added to the body; they replace any other value of the same key.
	Extra map[string]json.RawMessage
	// IDPrefix is the prefix of each x-request-id; the request's number follows.
	IDPrefix string
}

// Option is one key of the body.
type Option struct {
	Key   string
	Value any
}

// body returns the body of a request.
func (a *RequestParams) body(q workload.Request) ([]byte, error) {
	fields := []Option{{"model", a.Model}}
	switch a.Backend {
	case Chat:
		chat, err := a.chat(q)
		if err != nil {
			return nil, err
		}
		fields = append(fields, chat...)
	case Embeddings:
		fields = append(fields, Option{"input", q.Prompt}, Option{"encoding_format", "float"})
	default:
		fields = append(fields, a.completion(q)...)
	}
	if a.Backend != Embeddings {
		fields = append(fields, Option{"stream", true}, Option{"stream_options", map[string]bool{"include_usage": true}})
		if a.IgnoreEOS {
			fields = append(fields, Option{"ignore_eos", true})
		}
		fields = append(fields, a.Sampling...)
	}
	return a.write(fields)
}

func (a *RequestParams) completion(q workload.Request) []Option {
	out := []Option{{"prompt", q.Prompt}, {"repetition_penalty", 1.0}, {"max_tokens", q.Output}, {"logprobs", nil}}
	if a.Logprobs > 0 {
		out[3].Value = a.Logprobs
	}
	return out
}

func (a *RequestParams) chat(q workload.Request) ([]Option, error) {
	type text struct {
		Type string `json:"type"`
		Text string `json:"text"`
	}
	type image struct {
		Type string            `json:"type"`
		URL  map[string]string `json:"image_url"`
	}
	type message struct {
		Role    string `json:"role"`
		Content []any  `json:"content"`
	}
	parts := []any{text{"text", q.Prompt}}
	for _, p := range q.Images {
		url, err := p.URL()
		if err != nil {
			return nil, err
		}
		parts = append(parts, image{"image_url", map[string]string{"url": url}})
	}
	out := []Option{
		{"messages", []message{{"user", parts}}},
		{"max_completion_tokens", q.Output},
	}
	if a.Logprobs > 0 {
		out = append(out, Option{"logprobs", true}, Option{"top_logprobs", a.Logprobs})
	}
	return out, nil
}

// write writes each key once, with its last value, at the position of its first value.
func (a *RequestParams) write(fields []Option) ([]byte, error) {
	place := map[string]int{}
	var keys []string
	var values []any
	put := func(key string, value any) {
		if i, ok := place[key]; ok {
			values[i] = value
			return
		}
		place[key] = len(keys)
		keys, values = append(keys, key), append(values, value)
	}
	for _, f := range fields {
		put(f.Key, f.Value)
	}
	for key, value := range a.Extra {
		put(key, value)
	}
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	for i, key := range keys {
		b.WriteByte(","[0])
		if err := e.Encode(key); err != nil {
			return nil, err
		}
		b.WriteByte(':')
		if err := e.Encode(values[i]); err != nil {
			return nil, fmt.Errorf("%s: %w", key, err)
		}
	}
	b.WriteByte('}')
	out := b.Bytes()
	out[0] = '{'
	return out, nil
}
