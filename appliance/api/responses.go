package api

import (
	"net/http"
	"strings"

	"github.com/labstack/echo/v4"

	"vapp.dev/appliance/api/openai"
	"vapp.dev/appliance/chat"
)

// responsesPath is where OpenAI's newer protocol begins.
const responsesPath = "/v1/responses"

func isResponses(path string) bool {
	return path == responsesPath || strings.HasPrefix(path, responsesPath+"/")
}

// responses answers and stores nothing, so there is none to go on from.
func (s *Server) responses(c echo.Context, svc *chat.Service) error {
	b, err := s.body(c)
	if err != nil {
		return err
	}
	r, err := openai.DecodeResponses(b)
	if err != nil {
		return err
	}
	if r.Previous != "" {
		return c.JSONBlob(openai.ResponseNotFound(r.Previous))
	}
	return s.generate(c, svc, job{r, &r.Ask, &r.Wire, "resp_"})
}

// storedResponse is one that was asked for by its id.
func (s *Server) storedResponse(c echo.Context) error {
	return c.JSONBlob(openai.ResponseNotFound(c.Param("id")))
}

var responsesWording = wording{
	failed: openai.ResponsesError,
	status: func(status int, message string) []byte {
		return openai.ErrorOf(status, http.StatusText(status), "", message)
	},
	broken: openai.ResponsesBroken,
}
