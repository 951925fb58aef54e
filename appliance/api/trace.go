package api

import (
	"context"
	"net/http"
	"strings"

	"github.com/labstack/echo/v4"

	"vapp.dev/appliance/api/openai"
	"vapp.dev/appliance/chat"
)

// Trace follows one request that runs the model.
type Trace struct {
	Context  context.Context // in which the request runs
	Response string          // the reply's header Traceresponse (W3C Trace Context); "": none
	Ended    func(Outcome)   // is called when the reply has ended
}

// Outcome is how a reply ended. A background response that is accepted has status 200.
type Outcome struct {
	Status int    // of HTTP
	Error  string // type of the error as in OpenAI's error bodies, also of one after the status; "": none
}

// headerTraceresponse has the trace and the span that a request got.
const headerTraceresponse = "Traceresponse"

// runsModel reports whether the requests of a POST route become requests of the engine.
func runsModel(route string) bool {
	switch route {
	case "/invocations", "/v1/chat/completions/batch":
		return true
	}
	for _, a := range apis {
		if route == a.path {
			return true
		}
	}
	return false
}

// trace follows the requests that run the model. It comes after the guard, so that only clients
// that may use the server make spans.
func (s *Server) trace(next echo.HandlerFunc) echo.HandlerFunc {
	return func(c echo.Context) (err error) {
		r := c.Request()
		if s.cfg.Trace == nil || r.Method != http.MethodPost || !runsModel(c.Path()) {
			return next(c)
		}
		t := s.cfg.Trace(r.Context(), r.Header, c.Path())
		if t.Response != "" {
			c.Response().Header().Set(headerTraceresponse, t.Response)
		}
		c.SetRequest(r.WithContext(t.Context))
		o := outcome(c, chat.Errorf(chat.Internal, "", "panic"))
		defer func() { t.Ended(o) }()
		err = next(c)
		o = outcome(c, err)
		return err
	}
}

// outcome returns the outcome of a request whose handler returned err.
func outcome(c echo.Context, err error) (o Outcome) {
	o.Status = c.Response().Status
	if err == nil {
		return o
	}
	status := 0
	if h, ok := err.(*echo.HTTPError); ok {
		status, o.Error = h.Code, strings.ReplaceAll(http.StatusText(h.Code), " ", "")
	} else {
		e := chat.AsError(err)
		status, o.Error = openai.Status(e), openai.ErrorType(e)
	}
	if !c.Response().Committed {
		o.Status = status
	}
	return o
}
