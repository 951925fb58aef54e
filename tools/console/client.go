package console

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"time"

	"vapp.dev/tools/sse"
)

// Bounds on what a server may send.
const (
	maxBody    = 4 << 20  // bytes of an answer that is no stream
	maxText    = 32 << 20 // bytes of a reply's text
	maxRecords = 4 << 20  // of a stream
)

// modelsTimeout is the time in which a server must list its models.
const modelsTimeout = 15 * time.Second

// Client sends requests to an OpenAI-compatible server.
type Client struct {
	base string // ends before /v1
	key  string
	http *http.Client
}

// address matches a host and port without a scheme: names of this machine and IP addresses.
var address = regexp.MustCompile(`^(localhost|\d+\.\d+\.\d+\.\d+|\[[0-9a-fA-F:.]+\])(:\d+)?(/.*)?$`)

// IsURL reports whether an argument is the address of a server, not a file or a model.
func IsURL(arg string) bool { return strings.Contains(arg, "://") || address.MatchString(arg) }

// NewClient returns a client of the server at an address: with or without http:// and /v1.
func NewClient(at, key string) (*Client, error) {
	if !strings.Contains(at, "://") {
		at = "http://" + at
	}
	u, err := url.Parse(at)
	switch {
	case err != nil || u.Host == "":
		return nil, fmt.Errorf("%s is no address of a server; write http://HOST:PORT", Printable(at))
	case u.Scheme != "http" && u.Scheme != "https":
		return nil, fmt.Errorf("%s: a server is asked by http:// or https://, not %s://", Printable(at), Printable(u.Scheme))
	}
	u.RawQuery, u.Fragment = "", ""
	base := strings.TrimSuffix(strings.TrimRight(u.String(), "/"), "/v1")
	return &Client{base: strings.TrimRight(base, "/"), key: key, http: &http.Client{Transport: &http.Transport{
		Proxy: http.ProxyFromEnvironment, DialContext: (&net.Dialer{Timeout: 10 * time.Second}).DialContext,
		TLSHandshakeTimeout: 10 * time.Second,
	}}}, nil
}

// URL returns the server's address, without a password.
func (c *Client) URL() string {
	u, err := url.Parse(c.base)
	if err != nil {
		return c.base
	}
	return u.Redacted()
}

// Model is a model that a server lists.
type Model struct {
	ID          string `json:"id"`
	MaxModelLen int    `json:"max_model_len"` // 0: not reported
}

// Models returns the models of the server, at least one.
func (c *Client) Models(ctx context.Context) ([]Model, error) {
	ctx, stop := context.WithTimeout(ctx, modelsTimeout)
	defer stop()
	text, err := c.Get(ctx, "/v1/models")
	if err != nil {
		return nil, err
	}
	var list struct{ Data []Model }
	if err := json.Unmarshal(text, &list); err != nil {
		return nil, fmt.Errorf("%s/v1/models is no list of models: %s", c.URL(), clip(string(text)))
	}
	if len(list.Data) == 0 || list.Data[0].ID == "" {
		return nil, fmt.Errorf("%s lists no model; give one as --model", c.URL())
	}
	return list.Data, nil
}

// Get returns the answer of a route of the server.
func (c *Client) Get(ctx context.Context, path string) ([]byte, error) {
	resp, err := c.send(ctx, http.MethodGet, path, nil)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(io.LimitReader(resp.Body, maxBody))
	if err != nil {
		return nil, c.lost(ctx, err)
	}
	return text, nil
}

// Piece is a part of a reply.
type Piece struct{ Reasoning, Text string }

// Usage counts the tokens of a request.
type Usage struct {
	Prompt     int `json:"prompt_tokens"`
	Completion int `json:"completion_tokens"`
}

// Reply is the end of a reply.
type Reply struct {
	Usage  *Usage // nil: the server did not report it
	Finish string // finish_reason; "" if the server reported none
}

// Complete sends a chat request and calls take for each part of the reply, as it arrives.
func (c *Client) Complete(ctx context.Context, request map[string]any, take func(Piece) error) (Reply, error) {
	body, err := json.Marshal(request)
	if err != nil {
		return Reply{}, err
	}
	ctx, stop := context.WithCancel(ctx)
	defer stop() // ends the request at the server, too
	resp, err := c.send(ctx, http.MethodPost, "/v1/chat/completions", body)
	if err != nil {
		return Reply{}, err
	}
	defer resp.Body.Close()
	return c.stream(ctx, resp, take)
}

// record is what a chat reads of a record.
type record struct {
	Choices []struct {
		Delta struct {
			Content          *string `json:"content"`
			Reasoning        *string `json:"reasoning"`
			ReasoningContent *string `json:"reasoning_content"`
		} `json:"delta"`
		Finish *string `json:"finish_reason"`
	} `json:"choices"`
	Usage *Usage          `json:"usage"`
	Error json.RawMessage `json:"error"`
}

func (c *Client) stream(ctx context.Context, resp *http.Response, take func(Piece) error) (Reply, error) {
	var out Reply
	size, done := 0, false
	in := sse.NewReader(bufio.NewReader(resp.Body))
	for n := 0; ; n++ {
		data, failed, err := in.Next()
		switch {
		case errors.Is(err, io.EOF):
			switch {
			case done || out.Finish != "":
				return out, nil
			case in.Other() != nil:
				return out, fmt.Errorf("%s answers with no event stream: %s", c.URL(), clip(string(in.Other())))
			}
			return out, &LostError{c.URL(), "it ended the reply early"}
		case errors.Is(err, sse.ErrSize):
			return out, fmt.Errorf("%s sends a broken stream: %w", c.URL(), err)
		case err != nil:
			return out, c.lost(ctx, err)
		case failed:
			return out, fmt.Errorf("the server reports: %s", message(data))
		case string(bytes.TrimSpace(data)) == "[DONE]":
			return out, nil
		case n > maxRecords:
			return out, fmt.Errorf("%s sends an endless stream: more than %d records", c.URL(), maxRecords)
		}
		var r record
		if err := json.Unmarshal(data, &r); err != nil {
			return out, fmt.Errorf("%s sends a broken stream: %s", c.URL(), clip(string(data)))
		}
		if len(r.Error) > 0 && string(r.Error) != "null" {
			return out, fmt.Errorf("the server reports: %s", message(data))
		}
		if r.Usage != nil && r.Usage.Prompt >= 0 && r.Usage.Completion >= 0 {
			out.Usage = r.Usage
		}
		if len(r.Choices) == 0 {
			continue
		}
		choice := r.Choices[0]
		if choice.Finish != nil && *choice.Finish != "" {
			out.Finish, done = *choice.Finish, true
		}
		p := Piece{Reasoning: first(choice.Delta.Reasoning, choice.Delta.ReasoningContent), Text: first(choice.Delta.Content)}
		if size += len(p.Reasoning) + len(p.Text); size > maxText {
			return out, fmt.Errorf("%s sends an endless reply: more than %d bytes", c.URL(), maxText)
		}
		if p != (Piece{}) {
			if err := take(p); err != nil {
				return out, err
			}
		}
	}
}

// first returns the first text that is there.
func first(list ...*string) string {
	for _, s := range list {
		if s != nil && *s != "" {
			return *s
		}
	}
	return ""
}

// send sends a request and returns the answer, or the error that the answer describes.
func (c *Client) send(ctx context.Context, method, path string, body []byte) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, method, c.base+path, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	if c.key != "" {
		req.Header.Set("Authorization", "Bearer "+c.key)
	}
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return nil, c.lost(ctx, err)
	}
	if resp.StatusCode == http.StatusOK {
		return resp, nil
	}
	defer resp.Body.Close()
	text, _ := io.ReadAll(io.LimitReader(resp.Body, 64<<10)) // what was read is shown
	return nil, c.refused(resp.StatusCode, path, text)
}

// refused returns the error of an answer other than 200.
func (c *Client) refused(status int, path string, text []byte) error {
	switch said := message(text); status {
	case http.StatusUnauthorized, http.StatusForbidden:
		return fmt.Errorf("%s refuses the key (HTTP %d): give the server's key as --api-key or in VAPP_API_KEY", c.URL(), status)
	case http.StatusNotFound:
		return fmt.Errorf("%s%s: not found (HTTP 404): %s", c.URL(), path, said)
	case http.StatusServiceUnavailable:
		var state struct{ Phase string }
		if json.Unmarshal(text, &state) == nil && state.Phase != "" {
			said = Printable(state.Phase)
		}
		return fmt.Errorf("%s is not ready (HTTP 503): %s; try again in a moment", c.URL(), said)
	case http.StatusTooManyRequests:
		return fmt.Errorf("%s has too many requests (HTTP 429): %s; try again in a moment", c.URL(), said)
	default:
		return fmt.Errorf("%s refuses the request (HTTP %d): %s", c.URL(), status, said)
	}
}

// LostError means that there is no connection to the server, or no longer.
type LostError struct{ url, why string }

func (e *LostError) Error() string { return fmt.Sprintf("no answer from %s: %s", e.url, e.why) }

// lost returns the error of a connection that failed.
func (c *Client) lost(ctx context.Context, err error) error {
	var op *net.OpError
	var inURL *url.Error
	switch {
	case errors.Is(ctx.Err(), context.Canceled):
		return context.Canceled
	case errors.Is(err, context.DeadlineExceeded):
		return &LostError{c.URL(), "it did not answer in time"}
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return &LostError{c.URL(), "it closed the connection"}
	case errors.As(err, &op):
		err = op.Err
	case errors.As(err, &inURL):
		err = inURL.Err
	}
	return &LostError{c.URL(), clip(err.Error())}
}

// message returns the message of an error's body, in the shapes of OpenAI, FastAPI and vLLM.
func message(body []byte) string {
	var m struct {
		Error   json.RawMessage
		Message string
		Detail  json.RawMessage
	}
	if json.Unmarshal(body, &m) != nil {
		return clip(string(body))
	}
	for _, raw := range []json.RawMessage{m.Error, m.Detail} {
		var text string
		var inner struct{ Message string }
		switch {
		case json.Unmarshal(raw, &inner) == nil && inner.Message != "":
			return clip(inner.Message)
		case json.Unmarshal(raw, &text) == nil && text != "":
			return clip(text)
		}
	}
	if m.Message != "" {
		return clip(m.Message)
	}
	return clip(string(body))
}

// clip shortens a text to one printable line.
func clip(s string) string {
	const most = 300
	s = Printable(strings.Join(strings.Fields(s), " "))
	if r := []rune(s); len(r) > most {
		s = string(r[:most]) + "…"
	}
	if s == "" {
		return "(nothing)"
	}
	return s
}
