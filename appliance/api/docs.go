package api

import (
	"net/http"
	"sync"

	"github.com/labstack/echo/v4"

	"vapp.dev/appliance/api/anthropic"
	"vapp.dev/appliance/api/openai"
	"vapp.dev/appliance/api/openapi"
)

// docs holds the OpenAPI document and its HTML pages, made at the first request.
type docs struct {
	once     sync.Once
	document []byte
	page     []byte // /docs, from which requests can be sent
	print    []byte // /redoc, for reading only
	err      error
}

func (s *Server) docsRoutes() []route {
	const tag = "Documentation"
	html := func(summary string, open bool) openapi.Operation {
		return openapi.Operation{Tag: tag, Summary: summary, Reply: "", Media: "text/html", Open: open}
	}
	return []route{
		{"GET HEAD", "/openapi.json", s.serveDocs(echo.MIMEApplicationJSON, func(d *docs) []byte { return d.document }),
			openapi.Operation{Tag: tag, Summary: "This OpenAPI document", Reply: map[string]any{}, Open: true}},
		{"GET HEAD", "/docs", s.serveDocs(echo.MIMETextHTMLCharsetUTF8, func(d *docs) []byte { return d.page }),
			html("A page of the routes, from which requests can be sent", true)},
		{"GET HEAD", "/docs/oauth2-redirect", s.serveDocs(echo.MIMETextHTMLCharsetUTF8, func(*docs) []byte { return []byte(openapi.NoOAuth2) }),
			html("The redirect page of a sign-in, which this server does not have", true)},
		{"GET HEAD", "/redoc", s.serveDocs(echo.MIMETextHTMLCharsetUTF8, func(d *docs) []byte { return d.print }),
			html("A page of the routes, for reading only", false)},
	}
}

// serveDocs answers with one part of the docs; 404 when the profile disables them.
func (s *Server) serveDocs(media string, part func(*docs) []byte) echo.HandlerFunc {
	return func(c echo.Context) error {
		if settings(c).NoDocs {
			return echo.ErrNotFound
		}
		s.docs.once.Do(s.document)
		if s.docs.err != nil {
			return s.docs.err
		}
		h, body := c.Response().Header(), part(&s.docs)
		h.Set(echo.HeaderXContentTypeOptions, "nosniff")
		if media == echo.MIMETextHTMLCharsetUTF8 {
			h.Set(echo.HeaderContentSecurityPolicy, openapi.Policy(body))
			h.Set(echo.HeaderXFrameOptions, "DENY")
			h.Set(echo.HeaderReferrerPolicy, "no-referrer")
		}
		return c.Blob(http.StatusOK, media, body)
	}
}

func (s *Server) document() {
	d := &s.docs
	d.document, d.err = openapi.Document(openapi.API{
		Title: "vapp", Version: s.cfg.Version,
		Text:       "A server of one language model with the APIs of vLLM, OpenAI and Anthropic. Unknown fields are ignored; a null counts as absent.",
		Operations: s.operations(),
		Error:      openai.ErrorBody{}, Errors: map[string]any{messagesPath: anthropic.ErrorShape()}, Unauthorized: unauthorized{},
	})
	if d.err == nil {
		d.page, d.print, d.err = openapi.Pages(d.document)
	}
}

// Bodies of replies of this package's own routes.
type (
	phase struct {
		Phase string `json:"phase"`
		Why   string `json:"why,omitempty"`
	}
	version struct {
		Version string `json:"version"`
	}
	load struct {
		Load int `json:"server_load"`
	}
	scaling struct {
		Scaling bool `json:"is_scaling_elastic_ep"`
	}
	sleeping struct {
		Sleeping bool `json:"is_sleeping"`
	}
	unauthorized struct {
		Error string `json:"error"`
	}
)
