package api

import (
	"net/http"
	"strings"

	"github.com/labstack/echo/v4"

	"vapp.dev/appliance/chat"
)

// unsupportedRoute is a route of vLLM that this server does not support.
type unsupportedRoute struct {
	path    string
	methods []string
	why     string
}

var (
	byPost = []string{http.MethodPost}
	byGet  = []string{http.MethodGet}
)

// unsupported are the routes that answer 501 with a reason. Other methods get 405, as
// in vLLM.
var unsupported = []unsupportedRoute{
	{"/v2/embed", byPost, "embeddings are at /v1/embeddings"},
	{"/v1/audio/transcriptions", byPost, "the model does not take speech"},
	{"/v1/audio/translations", byPost, "the model does not take speech"},
	{"/v1/realtime", byGet, "the model does not take speech"},
	{"/scale_elastic_ep", byPost, "the number of replicas is the profile's"},
	{"/tokenizer_info", byGet, devOnly}, {"/server_info", byGet, devOnly}, {"/abort_requests", byPost, devOnly},
	{"/pause", byPost, devOnly}, {"/resume", byPost, devOnly}, {"/collective_rpc", byPost, devOnly},
	{"/reset_prefix_cache", byPost, devOnly}, {"/reset_mm_cache", byPost, devOnly}, {"/reset_encoder_cache", byPost, devOnly},
	{"/start_profile", byPost, devOnly}, {"/stop_profile", byPost, devOnly},
}

const (
	devOnly = "it is a route of development servers"
)

// instead has the routes to name in the 404 of a path: those of Ollama, llama.cpp, TGI and SGLang, and
// a base URL with no "/v1" or with two.
var instead = map[string]string{
	"/api/chat": "/v1/chat/completions", "/api/generate": "/v1/completions", "/api/tags": "/v1/models",
	"/api/embed": "/v1/embeddings", "/api/embeddings": "/v1/embeddings",
	"/completion": "/v1/completions", "/embedding": "/v1/embeddings",
	"/generate": "/v1/completions", "/generate_stream": "/v1/completions",
	"/chat/completions": "/v1/chat/completions", "/v1/v1/chat/completions": "/v1/chat/completions",
	"/completions": "/v1/completions", "/v1/v1/completions": "/v1/completions",
	"/responses": "/v1/responses", "/v1/v1/responses": "/v1/responses",
	"/messages": "/v1/messages", "/v1/v1/messages": "/v1/messages",
	"/embeddings": "/v1/embeddings", "/v1/v1/embeddings": "/v1/embeddings",
	"/models": "/v1/models", "/v1/v1/models": "/v1/models",
}

// noRoute returns the message of a 404, with the route that was probably meant.
func noRoute(path string) string {
	if to := instead[strings.TrimRight(path, "/")]; to != "" {
		return "Not Found; this server has " + to
	}
	return http.StatusText(http.StatusNotFound)
}

func (s *Server) refuse(c echo.Context) error {
	for _, r := range unsupported {
		if r.path == c.Path() {
			return chat.Errorf(chat.Unsupported, "", "%s is not available in this deployment: %s.", r.path, r.why)
		}
	}
	return echo.ErrNotFound
}
