package api

import (
	"context"
	"net/http"

	"github.com/labstack/echo/v4"

	"vapp.dev/appliance/chat"
)

// Sleeper frees a model's memory and loads it again. Its errors are *chat.Error.
type Sleeper interface {
	// Sleep frees the memory. Level 1 keeps the weights, 2 keeps nothing.
	Sleep(ctx context.Context, level int) (SleepReply, error)
	// Wake loads the model again, if it sleeps.
	Wake(context.Context) error
	// Sleeping reports whether Sleep was called last.
	Sleeping() bool
}

// SleepReply is the reply of POST /sleep; vLLM's has no body.
type SleepReply struct {
	Level int    `json:"level"` // that is reached
	Freed int64  `json:"freed_bytes"`
	Kept  int64  `json:"kept_bytes"` // of weights
	Note  string `json:"note"`
}

// asleep passes requests on if clients may let the model sleep.
func (s *Server) asleep(next func(echo.Context, Sleeper) error) echo.HandlerFunc {
	return func(c echo.Context) error {
		if s.cfg.Sleeper == nil || !settings(c).Sleep {
			return chat.Errorf(chat.Unsupported, "", "%s is not available in this deployment: set serve.sleep in the profile.", c.Path())
		}
		return next(c, s.cfg.Sleeper)
	}
}

// sleep handles POST /sleep?level=1|2.
func (s *Server) sleep(c echo.Context, to Sleeper) error {
	level := 1
	switch text := c.QueryParam("level"); text {
	case "", "1":
	case "2":
		level = 2
	default:
		return chat.Errorf(chat.Invalid, "level", "level %q is not known: 1 frees the KV cache and keeps the weights, 2 frees both.", text)
	}
	r, err := to.Sleep(c.Request().Context(), level)
	if err != nil {
		return err
	}
	return answer(c, http.StatusOK, r)
}

// wakeUp handles POST /wake_up.
func (s *Server) wakeUp(c echo.Context, to Sleeper) error {
	if tags := c.QueryParams()["tags"]; len(tags) > 0 {
		return chat.Errorf(chat.Unsupported, "tags", "tags are not supported: weights and KV cache wake up together; leave tags out.")
	}
	if err := to.Wake(c.Request().Context()); err != nil {
		return err
	}
	return c.NoContent(http.StatusOK)
}

// isSleeping handles GET /is_sleeping.
func (s *Server) isSleeping(c echo.Context) error {
	return answer(c, http.StatusOK, sleeping{s.cfg.Sleeper != nil && s.cfg.Sleeper.Sleeping()})
}
