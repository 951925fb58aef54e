package bench

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"
)

// Server is the server under test.
type Server struct {
	// BaseURL ends without a slash, Endpoint begins with one.
	BaseURL, Endpoint string
	// Key is sent as a bearer token; "": none.
	Key string
	// Header is added to every request and replaces the request's own values.
	Header http.Header
	Client *http.Client
}

// head sets the headers of every request. An Idempotency-Key without values is not sent; it allows
// the transport to repeat a request whose kept connection the server has closed.
func (s *Server) head(r *http.Request) {
	r.Header["Idempotency-Key"] = nil
	if r.Body != nil {
		r.Header.Set("Content-Type", "application/json")
	}
	if s.Key != "" {
		r.Header.Set("Authorization", "Bearer "+s.Key)
	}
	for key, values := range s.Header {
		r.Header[key] = values
	}
}

// asking is the timeout of requests that are not measured.
const asking = 30 * time.Second

// ask sends a POST with question, or a GET where it is nil, and returns the body of the answer.
func (s *Server) ask(ctx context.Context, path string, question any) ([]byte, error) {
	return s.askFor(ctx, asking, path, question)
}

// askFor is ask with another timeout.
func (s *Server) askFor(ctx context.Context, bound time.Duration, path string, question any) ([]byte, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, bound, fmt.Errorf("no answer within %v", bound))
	defer cancel()
	method, body := http.MethodGet, io.Reader(nil)
	if question != nil {
		b, err := json.Marshal(question)
		if err != nil {
			return nil, err
		}
		method, body = http.MethodPost, bytes.NewReader(b)
	}
	r, err := http.NewRequestWithContext(ctx, method, s.BaseURL+path, body)
	if err != nil {
		return nil, err
	}
	s.head(r)
	resp, err := s.Client.Do(r)
	if err != nil {
		return nil, fmt.Errorf("%s%s: %w", s.BaseURL, path, connectFailure(ctx, err))
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	switch {
	case err != nil:
		return nil, fmt.Errorf("%s%s: %w", s.BaseURL, path, endFailure(ctx, err))
	case resp.StatusCode != http.StatusOK:
		return nil, &statusError{s.BaseURL + path, resp.StatusCode, clip(answerText(resp, text))}
	}
	return text, nil
}

// profiling is the timeout of starting and stopping a profile; vLLM writes the profile before it
// answers.
const profiling = 10 * time.Minute

// profiler starts or stops vLLM's profiler.
func (s *Server) profiler(ctx context.Context, word string) error {
	if _, err := s.askFor(ctx, profiling, "/"+word+"_profile", struct{}{}); err != nil {
		return fmt.Errorf("bench: --profile: %w; it is vLLM's, whose server has to be started with a profiler (--profiler-config)", err)
	}
	return nil
}

// statusError is an answer with an error status.
type statusError struct {
	url    string
	status int
	text   string
}

func (e *statusError) Error() string { return fmt.Sprintf("%s: HTTP %d: %s", e.url, e.status, e.text) }

// models returns the entries of /v1/models.
func (s *Server) models(ctx context.Context) ([]modelEntry, error) {
	text, err := s.ask(ctx, "/v1/models", nil)
	if err != nil {
		return nil, err
	}
	var reply struct{ Data []modelEntry }
	if err := json.Unmarshal(text, &reply); err != nil || len(reply.Data) == 0 || reply.Data[0].ID == "" {
		return nil, fmt.Errorf("%s/v1/models lists no model: %s", s.BaseURL, clip(string(text)))
	}
	return reply.Data, nil
}

// modelEntry is a model that a server lists; llama-server also lists its vocabulary.
type modelEntry struct {
	ID   string
	Meta struct {
		Vocab int `json:"n_vocab"`
	}
}

// FirstModel returns the first model that the server lists. It retries for the time of patience
// while the server does not answer.
func (s *Server) FirstModel(ctx context.Context, patience time.Duration) (string, error) {
	var list []modelEntry
	err := patiently(ctx, patience, func() (err error) {
		list, err = s.models(ctx)
		return err
	})
	switch {
	case ctx.Err() != nil:
		return "", ctx.Err()
	case err != nil:
		return "", fmt.Errorf("bench: %w; start the server (--ready-check-timeout-sec waits for it), or name the model with --model", err)
	}
	return list[0].ID, nil
}

// patiently calls do until it succeeds or the time is over, and returns its last error.
func patiently(ctx context.Context, patience time.Duration, do func() error) error {
	until := time.Now().Add(patience)
	for {
		err := do()
		if err == nil || !time.Now().Add(probeEvery).Before(until) || !sleep(ctx, probeEvery) {
			return err
		}
	}
}

// isRefusal reports whether err is an error status of the server. A server that is still loading does
// not count.
func isRefusal(err error) bool {
	var status *statusError
	return errors.As(err, &status) && status.status != http.StatusServiceUnavailable
}
