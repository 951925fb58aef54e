package api

import (
	"encoding/json"
	"net/http"
	"slices"
	"time"

	"github.com/labstack/echo/v4"

	"vapp.dev/appliance/api/openai"
	"vapp.dev/appliance/chat"
)

// About is what /v1/models shows of a model besides its names.
type About struct {
	Root     string // source
	Length   int    // the longest sequence, in tokens
	Adapters []chat.Adapter
	Now      time.Time
}

// Describer is a State that can describe its model while it is not loaded.
type Describer interface {
	// About returns ok false where the model is loaded, or is not known.
	About() (a About, ok bool)
}

// described passes on what the model is. It does not load a model that waits for a request.
func (s *Server) described(next func(echo.Context, About) error) echo.HandlerFunc {
	loaded := s.ready(func(c echo.Context, svc *chat.Service) error {
		return next(c, About{svc.ModelRoot(), svc.ModelLen(), svc.Adapters(), svc.Now()})
	})
	return func(c echo.Context) error {
		if d, is := s.cfg.State.(Describer); is {
			if a, ok := d.About(); ok {
				return next(c, a)
			}
		}
		return loaded(c)
	}
}

// models lists every served name.
func (s *Server) models(c echo.Context, a About) error {
	var list []openai.Model
	for _, name := range servedNames(c, settings(c).Chat.Models, a.Root) {
		list = append(list, s.describe(c, name, a))
	}
	for _, l := range a.Adapters {
		list = append(list, s.describeAdapter(c, l, a))
	}
	return c.JSONBlob(http.StatusOK, openai.ModelList(list))
}

// model describes one name; names may hold slashes.
func (s *Server) model(c echo.Context, a About) error {
	name := pathParam(c, "*")
	if !slices.Contains(settings(c).Chat.Models, name) {
		for _, l := range a.Adapters {
			if l.Name == name {
				return c.JSONBlob(http.StatusOK, s.describeAdapter(c, l, a).Body())
			}
		}
		return chat.Errorf(chat.NotFound, "model", "The model `%s` does not exist.", name)
	}
	return c.JSONBlob(http.StatusOK, s.describe(c, name, a).Body())
}

func (s *Server) describe(c echo.Context, name string, a About) openai.Model {
	return openai.NewModel(name, s.cfg.NewID(), openai.ModelFacts{
		Root: modelRoot(c, a.Root), ModelLen: a.Length, Created: a.Now.Unix(),
	})
}

func (s *Server) tokenize(c echo.Context, svc *chat.Service) error {
	ask, err := decodeBody(c, s.body, openai.DecodeTokenize)
	if err != nil {
		return err
	}
	t, err := svc.Tokenize(c.Request().Context(), ask, &settings(c).Chat)
	if err != nil {
		return err
	}
	return c.JSONBlob(http.StatusOK, openai.TokenizeReply(t, svc.ModelLen()))
}

func (s *Server) detokenize(c echo.Context, svc *chat.Service) error {
	ask, err := decodeBody(c, s.body, openai.DecodeDetokenize)
	if err != nil {
		return err
	}
	text, err := svc.Detokenize(ask.Model, ask.Tokens, &settings(c).Chat)
	if err != nil {
		return err
	}
	return c.JSONBlob(http.StatusOK, openai.DetokenizeReply(text))
}

// health answers 200 without a body when requests can be answered, else 503.
func (s *Server) health(c echo.Context) error {
	if !s.cfg.State.Healthy() {
		return s.notReady()
	}
	return c.NoContent(http.StatusOK)
}

// livez handles GET /livez: always 200.
func (s *Server) livez(c echo.Context) error { return s.sendPhase(c, http.StatusOK) }

// readyz handles GET /readyz: 200 when requests can be answered, else 503.
func (s *Server) readyz(c echo.Context) error {
	if !s.cfg.State.Ready() {
		return s.sendPhase(c, http.StatusServiceUnavailable)
	}
	return s.sendPhase(c, http.StatusOK)
}

// sendPhase answers with the startup phase. Clients that may read guarded routes also
// get the reason, since an error names the device and the call that failed.
func (s *Server) sendPhase(c echo.Context, status int) error {
	return answer(c, status, phase{s.cfg.State.Phase(), s.phaseReason(c)})
}

func (s *Server) version(c echo.Context) error {
	return answer(c, http.StatusOK, version{s.cfg.Version})
}

func (s *Server) load(c echo.Context) error {
	return answer(c, http.StatusOK, load{s.InFlight()})
}

func (s *Server) notScaling(c echo.Context) error {
	return answer(c, http.StatusOK, scaling{})
}

func answer(c echo.Context, status int, v any) error {
	b, err := json.Marshal(v)
	if err != nil {
		return err
	}
	return c.JSONBlob(status, b)
}
