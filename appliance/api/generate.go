package api

import (
	"context"
	"mime"
	"net/http"

	"github.com/labstack/echo/v4"

	"vapp.dev/appliance/api/openai"
	"vapp.dev/appliance/chat"
)

// body reads the whole body. The Content-Type must be application/json.
func (s *Server) body(c echo.Context) ([]byte, error) {
	if b, is := c.Get(bodyKey).([]byte); is {
		c.Set(bodyKey, nil)
		return b, nil
	}
	r := c.Request()
	kind, _, err := mime.ParseMediaType(r.Header.Get(echo.HeaderContentType))
	if err != nil || kind != echo.MIMEApplicationJSON {
		return nil, chat.Errorf(chat.Malformed, "", "Unsupported Media Type: Only 'application/json' is allowed")
	}
	b, err := s.read(c, settings(c).MaxBodyBytes)
	if err == nil && settings(c).LogRequests {
		s.logRequest(c, b)
	}
	return b, err
}

// decodeBody reads the request's body with body and decodes it with read. It then
// releases the reservation of the raw bytes.
func decodeBody[R any](c echo.Context, body func(echo.Context) ([]byte, error), read func([]byte) (R, error)) (r R, err error) {
	b, err := body(c)
	if err != nil {
		return r, err
	}
	defer reservationOf(c).raw.release()
	return read(b)
}

// replyWriter writes the reply of a request in its protocol's form, whole or streamed.
type replyWriter interface {
	Reply(*chat.Run, []chat.Reply) []byte
	Stream(*chat.Run) openai.Stream
}

func (s *Server) chat(c echo.Context, svc *chat.Service) error {
	r, err := decodeBody(c, s.body, openai.DecodeChat)
	if err != nil {
		return err
	}
	return s.generate(c, svc, job{r, &r.Ask, &r.Wire, "chatcmpl-"})
}

func (s *Server) completion(c echo.Context, svc *chat.Service) error {
	r, err := decodeBody(c, s.body, openai.DecodeCompletion)
	if err != nil {
		return err
	}
	return s.generate(c, svc, job{r, &r.Ask, &r.Wire, "cmpl-"})
}

// job is a decoded request for tokens.
type job struct {
	replyWriter
	ask    *chat.RequestParams
	wire   *openai.Wire
	prefix string // of the reply's id
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
	replies, err := wait(ctx, run)
	if err != nil {
		return err
	}
	s.addLoadHeader(c)
	return c.JSONBlob(http.StatusOK, j.Reply(run, replies))
}

// start starts the run of a request whose ID is set, and releases the request's text.
// The caller calls ended after reading the run, also after an error. The HTTP request
// may have ended by then.
func (s *Server) start(ctx context.Context, c echo.Context, svc *chat.Service, j job) (run *chat.Run, ended func(), err error) {
	set := settings(c)
	s.applyWire(c, j.wire)
	req, err := chat.NewRequest(*j.ask, &set.Chat)
	if err != nil {
		return nil, nil, err
	}
	if name := req.Adapter(); name != "" {
		c.Set(adapterKey, name)
	}
	if run, err = svc.Start(ctx, req); err != nil {
		return nil, nil, err
	}
	j.ask.Chat, j.ask.Prompts = nil, nil
	reservationOf(c).release()
	s.bodies.Load().settle()
	m := c.Get(meterKey).(*meter)
	return run, func() {
		s.countUsage(set, m, run)
		run.Close()
	}, nil
}

// countUsage counts a run's tokens against the limits of its key, and its completion.
func (s *Server) countUsage(set *live, m *meter, run *chat.Run) {
	now, u := s.cfg.Now(), run.Usage()
	s.completions.add(now)
	m.charge(now, set.PerKey, u.Prompt+u.Completion)
}

// next calls run.Next. It returns the context's error in place of a delta that ends a
// reply as aborted because the client closed the connection.
func next(ctx context.Context, run *chat.Run) ([]chat.Delta, error) {
	deltas, err := run.Next(ctx)
	for _, d := range deltas {
		if d.Finish == aborted && ctx.Err() != nil {
			return nil, ctx.Err()
		}
	}
	return deltas, err
}

// wait calls run.Wait, with the same error for an aborted reply.
func wait(ctx context.Context, run *chat.Run) ([]chat.Reply, error) {
	replies, err := run.Wait(ctx)
	for _, r := range replies {
		if r.Finish == aborted && ctx.Err() != nil {
			return nil, ctx.Err()
		}
	}
	return replies, err
}

const aborted = "abort"

// replyID returns the prefix and the request's id: from the header X-Request-Id, else
// from the body, else a new one.
func (s *Server) replyID(c echo.Context, j job) string {
	id := c.Get(idKey).(string)
	if own := j.ask.ID; validID(own) && c.Request().Header.Get(echo.HeaderXRequestID) == "" {
		id = own
	}
	return j.prefix + id
}

// applyWire applies the server's settings to the form of the reply. It logs the fields
// that are unknown or deprecated.
func (s *Server) applyWire(c echo.Context, w *openai.Wire) {
	set := settings(c)
	w.IncludeUsage = w.IncludeUsage || set.ForceIncludeUsage
	w.ReasoningContent = set.ReasoningContent
	if s.cfg.Trace == nil && c.Request().Header.Get("Traceparent") != "" {
		s.untraced.Do(func() {
			s.cfg.Log.Warn("traces are not followed: the traceparent and tracestate of requests are ignored; serve.traces turns traces on")
		})
	}
	if len(w.Deprecated) > 0 {
		s.cfg.Log.WarnContext(c.Request().Context(), "deprecated fields: use structured_outputs", "id", c.Get(idKey), "fields", w.Deprecated)
	}
	if len(w.Unknown) > 0 {
		s.cfg.Log.DebugContext(c.Request().Context(), "unknown fields ignored", "id", c.Get(idKey), "fields", w.Unknown)
	}
}
