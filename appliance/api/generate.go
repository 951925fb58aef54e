package api

import (
	"context"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"os"
	"time"

	"github.com/labstack/echo/v4"

	"vapp.dev/appliance/api/openai"
	"vapp.dev/appliance/chat"
)

// body reads the whole body, which must say that it is JSON.
func (s *Server) body(c echo.Context) ([]byte, error) {
	if b, is := c.Get(bodyKey).([]byte); is {
		return b, nil
	}
	r := c.Request()
	kind, _, err := mime.ParseMediaType(r.Header.Get(echo.HeaderContentType))
	if err != nil || kind != echo.MIMEApplicationJSON {
		return nil, chat.Errorf(chat.Malformed, "", "Unsupported Media Type: Only 'application/json' is allowed")
	}
	b, err := s.read(c)
	if err == nil && settings(c).LogRequests {
		s.received(c, b)
	}
	return b, err
}

// decoded is what read finds in a request's body, which body reads.
func decoded[R any](c echo.Context, body func(echo.Context) ([]byte, error), read func([]byte) (R, error)) (r R, err error) {
	b, err := body(c)
	if err != nil {
		return r, err
	}
	return read(b)
}

// read reads the whole body.
func (s *Server) read(c echo.Context) ([]byte, error) {
	r := c.Request()
	b, err := io.ReadAll(http.MaxBytesReader(c.Response().Writer, r.Body, settings(c).MaxBodyBytes))
	var large *http.MaxBytesError
	switch {
	case errors.As(err, &large):
		return nil, echo.NewHTTPError(http.StatusRequestEntityTooLarge, fmt.Sprintf("The body is larger than %d bytes.", large.Limit))
	case errors.Is(err, os.ErrDeadlineExceeded):
		c.Response().Header().Set(echo.HeaderConnection, "close")
		return nil, echo.NewHTTPError(http.StatusRequestTimeout, fmt.Sprintf("The body did not come within %s.", settings(c).BodyTimeout))
	case err != nil && r.Context().Err() != nil:
		return nil, r.Context().Err()
	case err != nil:
		return nil, chat.Errorf(chat.Malformed, "", "The body could not be read to its end.")
	}
	return b, nil
}

// dialect is what a protocol's request knows of its reply.
type dialect interface {
	Reply(*chat.Run, []chat.Reply) []byte
	Stream(*chat.Run) openai.Stream
}

func (s *Server) chat(c echo.Context, svc *chat.Service) error {
	r, err := decoded(c, s.body, openai.DecodeChat)
	if err != nil {
		return err
	}
	return s.generate(c, svc, job{r, &r.Ask, &r.Wire, "chatcmpl-"})
}

func (s *Server) completion(c echo.Context, svc *chat.Service) error {
	r, err := decoded(c, s.body, openai.DecodeCompletion)
	if err != nil {
		return err
	}
	return s.generate(c, svc, job{r, &r.Ask, &r.Wire, "cmpl-"})
}

// job is a decoded request for tokens.
type job struct {
	dialect
	ask    *chat.Ask
	wire   *openai.Wire
	prefix string // of the id
}

// generate answers a request for tokens.
func (s *Server) generate(c echo.Context, svc *chat.Service, j job) error {
	ctx := c.Request().Context()
	j.ask.ID = s.replyID(c, j)
	run, ended, err := s.start(ctx, c, svc, j)
	if err != nil {
		return err
	}
	defer ended()
	if j.wire.Stream {
		return s.stream(c, run, j.Stream(run))
	}
	replies, err := run.Wait(ctx)
	if err != nil {
		return err
	}
	s.tellLoad(c)
	return c.JSONBlob(http.StatusOK, j.Reply(run, replies))
}

// admit counts a request in, also when it says no.
func (s *Server) admit(set *live) error {
	if n := s.inFlight.Add(1); set.MaxConcurrent > 0 && n > int64(set.MaxConcurrent) {
		return chat.Errorf(chat.Overloaded, "", "The server is overloaded: %d requests are open. Please try again later.", set.MaxConcurrent)
	}
	return nil
}

// start begins the run of a request, whose ID is set. Whoever has read it calls
// ended, whichever way it ended; the request of HTTP may be over by then.
func (s *Server) start(ctx context.Context, c echo.Context, svc *chat.Service, j job) (run *chat.Run, ended func(), err error) {
	set := settings(c)
	defer func() {
		if ended == nil { // refused, or a panic
			s.inFlight.Add(-1)
		}
	}()
	if err := s.admit(set); err != nil {
		return nil, nil, err
	}
	s.wired(c, j.wire)
	req, err := chat.NewRequest(*j.ask, &set.Chat)
	if err != nil {
		return nil, nil, err
	}
	if run, err = svc.Start(ctx, req); err != nil {
		return nil, nil, err
	}
	m, began := c.Get(meterKey).(*meter), s.cfg.Now()
	return run, func() {
		s.used(set, m, run, began)
		run.Close()
		s.inFlight.Add(-1)
	}, nil
}

// ended counts what a request has used, whichever way it ended.
func (s *Server) ended(c echo.Context, run *chat.Run, began time.Time) {
	s.used(settings(c), c.Get(meterKey).(*meter), run, began)
}

func (s *Server) used(set *live, m *meter, run *chat.Run, began time.Time) {
	now, u := s.cfg.Now(), run.Usage()
	s.pace.ended(now.Sub(began), u)
	m.charge(now, set.PerKey, u.Prompt+u.Completion)
}

// replyID is the client's own, from the header or else the body, or a fresh one.
func (s *Server) replyID(c echo.Context, j job) string {
	id := c.Get(idKey).(string)
	if own := j.ask.ID; own != "" && len(own) <= maxID && c.Request().Header.Get(echo.HeaderXRequestID) == "" {
		id = own
	}
	return j.prefix + id
}

// wired adds what the server says of the reply's form, and logs which fields had no
// effect, and which have a newer name.
func (s *Server) wired(c echo.Context, w *openai.Wire) {
	set := settings(c)
	w.IncludeUsage = w.IncludeUsage || set.ForceIncludeUsage
	w.ReasoningContent = set.ReasoningContent
	if c.Request().Header.Get("Traceparent") != "" {
		s.untraced.Do(func() {
			s.cfg.Log.Warn("traces are not followed: the traceparent and tracestate of requests are ignored")
		})
	}
	if len(w.Deprecated) > 0 {
		s.cfg.Log.WarnContext(c.Request().Context(), "deprecated fields: use structured_outputs", "id", c.Get(idKey), "fields", w.Deprecated)
	}
	if len(w.Unknown) > 0 {
		s.cfg.Log.DebugContext(c.Request().Context(), "unknown fields ignored", "id", c.Get(idKey), "fields", w.Unknown)
	}
}
