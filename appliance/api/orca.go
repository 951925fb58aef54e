package api

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/labstack/echo/v4"
)

// The request header that asks for load metrics, and the reply's header: ORCA (Open
// Request Cost Aggregation), as Envoy and Kubernetes' inference gateway use them.
const (
	loadFormatHeader = "endpoint-load-metrics-format"
	loadHeader       = "endpoint-load-metrics"
)

// addLoadHeader adds the load metrics to a reply that is not streamed, if the request
// asks for them.
func (s *Server) addLoadHeader(c echo.Context) {
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

// decimal formats a number as Python does, with at least one digit after the point.
func decimal(v float64) string {
	text := strconv.FormatFloat(v, 'f', -1, 64)
	if !strings.Contains(text, ".") {
		text += ".0"
	}
	return text
}
