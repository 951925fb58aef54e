package api

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/labstack/echo/v4"
)

// The header by which a gateway asks for load figures, and that of the answer: ORCA's
// (Open Request Cost Aggregation), as Envoy and Kubernetes' inference gateway read them.
const (
	loadFormatHeader = "endpoint-load-metrics-format"
	loadHeader       = "endpoint-load-metrics"
)

// tellLoad adds the load to a reply that is not streamed, when the client asks for it.
func (s *Server) tellLoad(c echo.Context) {
	format := strings.ToUpper(c.Request().Header.Get(loadFormatHeader))
	if format == "" || s.cfg.Load == nil {
		return
	}
	used, waiting := s.cfg.Load()
	switch format {
	case "TEXT":
		c.Response().Header().Set(loadHeader, fmt.Sprintf("TEXT named_metrics.kv_cache_usage_perc=%s, named_metrics.num_requests_waiting=%d.0", decimal(used), waiting))
	case "JSON":
		c.Response().Header().Set(loadHeader, fmt.Sprintf(`JSON {"named_metrics": {"kv_cache_usage_perc": %s, "num_requests_waiting": %d.0}}`, decimal(used), waiting))
	default:
		s.cfg.Log.Debug("unknown format of load metrics", "id", c.Get(idKey), "format", format)
	}
}

// decimal writes a share as Python does, with a digit behind the point.
func decimal(v float64) string {
	text := strconv.FormatFloat(v, 'f', -1, 64)
	if !strings.Contains(text, ".") {
		text += ".0"
	}
	return text
}
