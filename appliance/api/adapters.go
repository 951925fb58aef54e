package api

import (
	"net/http"

	"github.com/labstack/echo/v4"

	"vapp.dev/appliance/api/openai"
	"vapp.dev/appliance/api/openapi"
	"vapp.dev/appliance/chat"
)

const (
	loadAdapterPath   = "/v1/load_lora_adapter"
	unloadAdapterPath = "/v1/unload_lora_adapter"
)

// adapterKey is the context key of the LoRA adapter of a request, for the access line.
const adapterKey = "lora"

func (s *Server) adapterRoutes() []route {
	const tag = "LoRA"
	return []route{
		{"POST", loadAdapterPath, s.updating(s.loadAdapter), text(describe(tag, "Load a LoRA adapter (lora.allowRuntimeUpdating)", openai.LoadAdapterShape(), `{"lora_name":"sql","lora_path":"/adapters/sql"}`))},
		{"POST", unloadAdapterPath, s.updating(s.unloadAdapter), text(describe(tag, "Unload a LoRA adapter (lora.allowRuntimeUpdating)", openai.UnloadAdapterShape(), `{"lora_name":"sql"}`))},
	}
}

// text returns an operation whose reply is plain text.
func text(o openapi.Operation) openapi.Operation {
	o.Media = "text/plain; charset=utf-8"
	return o
}

// updating refuses requests unless the profile allows clients to change adapters.
func (s *Server) updating(next func(echo.Context, *chat.Service) error) echo.HandlerFunc {
	return s.ready(func(c echo.Context, svc *chat.Service) error {
		if !settings(c).LoadAdapters {
			return chat.Errorf(chat.Unsupported, "", "%s is not available in this deployment: set lora.allowRuntimeUpdating in the profile.", c.Path())
		}
		return next(c, svc)
	})
}

func (s *Server) loadAdapter(c echo.Context, svc *chat.Service) error {
	r, err := decodeBody(c, s.body, openai.DecodeLoadAdapter)
	if err != nil {
		return err
	}
	if err := svc.LoadAdapter(c.Request().Context(), r.Name, r.Path, r.InPlace, &settings(c).Chat); err != nil {
		return err
	}
	return c.String(http.StatusOK, openai.AdapterAdded(r.Name))
}

func (s *Server) unloadAdapter(c echo.Context, svc *chat.Service) error {
	name, err := decodeBody(c, s.body, openai.DecodeUnloadAdapter)
	if err != nil {
		return err
	}
	if err := svc.UnloadAdapter(c.Request().Context(), name); err != nil {
		return err
	}
	return c.String(http.StatusOK, openai.AdapterRemoved(name))
}

// describeAdapter returns the entry of an adapter in /v1/models.
func (s *Server) describeAdapter(c echo.Context, l chat.Adapter, a About) openai.Model {
	return openai.NewAdapter(l.Name, settings(c).Chat.Models[0], s.cfg.NewID(), openai.ModelFacts{
		Root: modelRoot(c, l.Path), Created: a.Now.Unix(),
	})
}
