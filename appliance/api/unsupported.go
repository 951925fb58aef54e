package api

import (
	"net/http"

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

func (s *Server) refuse(c echo.Context) error {
	for _, r := range unsupported {
		if r.path == c.Path() {
			return chat.Errorf(chat.Unsupported, "", "%s is not available in this deployment: %s.", r.path, r.why)
		}
	}
	return echo.ErrNotFound
}
