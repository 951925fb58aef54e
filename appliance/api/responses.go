package api

import (
	"net/http"
	"strings"

	"github.com/labstack/echo/v4"

	"vapp.dev/appliance/api/openai"
	"vapp.dev/appliance/chat"
)

// responsesPath is the root of the routes of OpenAI's Responses protocol.
const responsesPath = "/v1/responses"

func isResponses(path string) bool {
	return path == responsesPath || strings.HasPrefix(path, responsesPath+"/")
}

// responses handles POST /v1/responses.
func (s *Server) responses(c echo.Context, svc *chat.Service) error {
	r, err := decodeBody(c, s.body, openai.DecodeResponses)
	if err != nil {
		return err
	}
	if s.cfg.Responses != nil {
		return s.respondStored(c, svc, r)
	}
	if r.Background {
		return chat.Errorf(chat.Invalid, "background", "`background` is not supported: this server stores no responses. Leave the field out, and read the reply or its stream; or let the operator set serve.responses.")
	}
	if r.Previous != "" {
		return c.JSONBlob(openai.ResponseNotFound(r.Previous))
	}
	r.Store = false
	if err := r.Resolve(nil, nil); err != nil {
		return err
	}
	return s.respond(c, svc, r, nil)
}

// respond runs a request in the foreground. keep, unless nil, stores the reply before
// the client gets its end.
func (s *Server) respond(c echo.Context, svc *chat.Service, r *openai.ResponsesRequest, keep func(*openai.ResponsesReply)) error {
	ctx, j := c.Request().Context(), job{nil, &r.Ask, &r.Wire, "resp_"}
	if keep == nil {
		r.Ask.ID, keep = s.replyID(c, j), func(*openai.ResponsesReply) {}
	}
	run, ended, err := s.start(ctx, c, svc, j)
	if err != nil {
		return err
	}
	defer ended()
	decode := s.decoder(c, svc, run)
	if r.Wire.Stream {
		reply := r.Events(run, decode)
		return s.streamResponse(c, run, reply, func() { keep(reply) })
	}
	reply := r.Whole(run, decode)
	for {
		deltas, err := next(ctx, run)
		if err != nil {
			return err
		}
		if deltas == nil {
			break
		}
		for _, d := range deltas {
			reply.Add(nil, d)
		}
	}
	reply.Close(nil)
	keep(reply)
	s.addLoadHeader(c)
	return c.JSONBlob(http.StatusOK, reply.Final())
}

// decoder returns a function that detokenizes tokens of a run.
func (s *Server) decoder(c echo.Context, svc *chat.Service, run *chat.Run) func([]int32) string {
	set := &settings(c).Chat
	return func(ids []int32) string {
		text, _ := svc.Detokenize(run.Model, ids, set) // no error: the service made these ids
		return text
	}
}

// streamResponse streams the events of a reply. An error before the first delta has
// its own HTTP status; a later one ends the response as failed.
func (s *Server) streamResponse(c echo.Context, run *chat.Run, reply *openai.ResponsesReply, keep func()) error {
	ctx := c.Request().Context()
	deltas, err := next(ctx, run)
	if err != nil {
		return err
	}
	w := s.openStream(c)
	buf := reply.Begin(nil)
	for ; deltas != nil && err == nil; deltas, err = next(ctx, run) {
		for _, d := range deltas {
			buf = reply.Add(buf, d)
		}
		if err := s.flush(w, buf); err != nil {
			return err
		}
		buf = buf[:0]
	}
	if err != nil {
		e := chat.AsError(err)
		if e.Kind == chat.Gone {
			return e
		}
		s.logError(c, e)
		reply.Fail(e)
	}
	buf = reply.Close(buf)
	keep()
	return s.flush(w, reply.End(buf))
}

var responsesWording = wording{
	error: openai.ResponsesError,
	status: func(status int, message string) []byte {
		return openai.ErrorOf(status, http.StatusText(status), "", message)
	},
	streamError: openai.ResponsesStreamError,
}
