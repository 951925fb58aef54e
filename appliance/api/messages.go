package api

import (
	"net/http"
	"strings"

	"github.com/labstack/echo/v4"

	"vapp.dev/appliance/api/anthropic"
	"vapp.dev/appliance/api/openai"
	"vapp.dev/appliance/chat"
)

// messagesPath is the root of the routes of Anthropic's protocol.
const messagesPath = "/v1/messages"

// messageWriter adapts a request of Anthropic's protocol to replyWriter.
type messageWriter struct{ *anthropic.Request }

func (d messageWriter) Stream(run *chat.Run) openai.Stream { return d.Events(run) }

func (s *Server) messages(c echo.Context, svc *chat.Service) error {
	r, err := decodeBody(c, s.messageBody, anthropic.Decode)
	if err != nil {
		return err
	}
	wire := &openai.Wire{Stream: r.Stream, Unknown: r.Unknown}
	return s.generate(c, svc, job{messageWriter{r}, &r.Ask, wire, "chatcmpl-"})
}

func (s *Server) countTokens(c echo.Context, svc *chat.Service) error {
	ask, err := decodeBody(c, s.messageBody, anthropic.DecodeCount)
	if err != nil {
		return err
	}
	ask.CountOnly = true
	t, err := svc.Tokenize(c.Request().Context(), ask, &settings(c).Chat)
	if err != nil {
		return err
	}
	return c.JSONBlob(http.StatusOK, anthropic.CountReply(t.Count))
}

// messageBody reads the body and sets the header Request-Id, which Anthropic's clients
// read.
func (s *Server) messageBody(c echo.Context) ([]byte, error) {
	c.Response().Header().Set("Request-Id", c.Get(idKey).(string))
	return s.body(c)
}

// wording writes errors in a protocol's form: error for an error with a Kind, status
// for a bare HTTP status, streamError for an error within a stream.
type wording struct {
	error       func(*chat.Error) []byte
	status      func(status int, message string) []byte
	streamError func(*chat.Error) []byte
}

// isMessages reports whether a path belongs to Anthropic's protocol.
func isMessages(path string) bool {
	return path == messagesPath || strings.HasPrefix(path, messagesPath+"/")
}

// wording returns the wording of the path's protocol.
func (s *Server) wording(c echo.Context) wording { return wordingOf(c.Request().URL.Path) }

// wordingOf returns the wording of the errors of a path.
func wordingOf(path string) wording {
	if isMessages(path) {
		return wording{
			error:       func(e *chat.Error) []byte { return anthropic.Error(openai.Status(e), e.Message) },
			status:      anthropic.Error,
			streamError: func(e *chat.Error) []byte { return anthropic.StreamError(nil, openai.Status(e), e.Message) },
		}
	}
	if isResponses(path) {
		return responsesWording
	}
	return wording{
		error: openai.Error,
		status: func(status int, message string) []byte {
			return openai.ErrorOf(status, http.StatusText(status), "", message)
		},
		streamError: func(e *chat.Error) []byte { return openai.StreamError(nil, e) },
	}
}
