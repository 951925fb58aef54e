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

// Server is what is measured.
type Server struct {
	// BaseURL has no slash at its end, Endpoint one at its start.
	BaseURL, Endpoint string
	// Key is sent as a bearer token where it is not empty.
	Key string
	// Header are added to all that it is asked, over what requests have of themselves.
	Header http.Header
	Client *http.Client
}

// head sets what every request has. A key without a value is not sent: it lets the
// transport repeat a request whose kept connection the server closed in the meantime.
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

// asking bounds a question that is not measured.
const asking = 30 * time.Second

// ask sends a question (nil: a GET) and returns the body of the answer.
func (s *Server) ask(ctx context.Context, path string, question any) ([]byte, error) {
	return s.askFor(ctx, asking, path, question)
}

// askFor is ask with a bound of its own.
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
		return nil, fmt.Errorf("%s%s: %w", s.BaseURL, path, unreached(ctx, err))
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	switch {
	case err != nil:
		return nil, fmt.Errorf("%s%s: %w", s.BaseURL, path, ended(ctx, err))
	case resp.StatusCode != http.StatusOK:
		return nil, &statusError{s.BaseURL + path, resp.StatusCode, clip(told(resp, text))}
	}
	return text, nil
}

// profiling bounds the start and the end of a profile, which vLLM writes before it answers.
const profiling = 10 * time.Minute

// profiler starts or stops vLLM's profiler.
func (s *Server) profiler(ctx context.Context, word string) error {
	if _, err := s.askFor(ctx, profiling, "/"+word+"_profile", struct{}{}); err != nil {
		return fmt.Errorf("bench: --profile: %w; it is vLLM's, whose server has to be started with a profiler (--profiler-config)", err)
	}
	return nil
}

// statusError is an answer that is none.
type statusError struct {
	url    string
	status int
	text   string
}

func (e *statusError) Error() string { return fmt.Sprintf("%s: HTTP %d: %s", e.url, e.status, e.text) }

// models are the entries of /v1/models.
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

// modelEntry is a model that a server lists; llama-server tells its vocabulary too.
type modelEntry struct {
	ID   string
	Meta struct {
		Vocab int `json:"n_vocab"`
	}
}

// FirstModel is the model to ask for when none is named. A server that is not there
// yet is asked again until the time is over.
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

// patiently does something until it succeeds or the time is over, and returns its last error.
func patiently(ctx context.Context, patience time.Duration, do func() error) error {
	until := time.Now().Add(patience)
	for {
		err := do()
		if err == nil || !time.Now().Add(probeEvery).Before(until) || !sleep(ctx, probeEvery) {
			return err
		}
	}
}

// refused tells an answer with a status from none at all. A server that is still loading
// gives none.
func refused(err error) bool {
	var status *statusError
	return errors.As(err, &status) && status.status != http.StatusServiceUnavailable
}
