package api

import (
	"context"
	"mime"
	"net/http"

	"github.com/labstack/echo/v4"

	"vapp.dev/appliance/api/openai"
	"vapp.dev/appliance/chat"
)

// body reads the whole body, which must say that it is JSON.
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
		s.received(c, b)
	}
	return b, err
}

// decoded is what read finds in a request's body, which body reads. The body itself is
// released.
func decoded[R any](c echo.Context, body func(echo.Context) ([]byte, error), read func([]byte) (R, error)) (r R, err error) {
	b, err := body(c)
	if err != nil {
		return r, err
	}
	defer holds(c).raw.release()
	return read(b)
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
	ask    *chat.RequestParams
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
	replies, err := wait(ctx, run)
	if err != nil {
		return err
	}
	s.tellLoad(c)
	return c.JSONBlob(http.StatusOK, j.Reply(run, replies))
}

// start begins the run of a request, whose ID is set. Its text is released. Whoever
// has read the run calls ended, whichever way it ended; the request of HTTP may be
// over by then.
func (s *Server) start(ctx context.Context, c echo.Context, svc *chat.Service, j job) (run *chat.Run, ended func(), err error) {
	set := settings(c)
	s.wired(c, j.wire)
	req, err := chat.NewRequest(*j.ask, &set.Chat)
	if err != nil {
		return nil, nil, err
	}
	if run, err = svc.Start(ctx, req); err != nil {
		return nil, nil, err
	}
	j.ask.Chat, j.ask.Prompts = nil, nil
	holds(c).release()
	s.bodies.settle()
	m := c.Get(meterKey).(*meter)
	return run, func() {
		s.used(set, m, run)
		run.Close()
	}, nil
}

// used counts what a request has used, whichever way it ended.
func (s *Server) used(set *live, m *meter, run *chat.Run) {
	now, u := s.cfg.Now(), run.Usage()
	s.pace.ended(now)
	m.charge(now, set.PerKey, u.Prompt+u.Completion)
}

// next is run.Next, with an error in place of what the engine says of a reply that it
// aborted because its client ended the connection.
func next(ctx context.Context, run *chat.Run) ([]chat.Delta, error) {
	deltas, err := run.Next(ctx)
	for _, d := range deltas {
		if d.Finish == aborted && ctx.Err() != nil {
			return nil, ctx.Err()
		}
	}
	return deltas, err
}

// wait is run.Wait likewise.
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

// replyID is the client's own, from the header or else the body, or a fresh one.
func (s *Server) replyID(c echo.Context, j job) string {
	id := c.Get(idKey).(string)
	if own := j.ask.ID; usable(own) && c.Request().Header.Get(echo.HeaderXRequestID) == "" {
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
