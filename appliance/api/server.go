// Package api is HTTP: routes, keys, limits, server-sent events, and the status
// of every error. What is in the bodies is converted elsewhere.
package api

import (
	"crypto/rand"
	"encoding/hex"
	"log/slog"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/labstack/echo/v4"

	"vapp.dev/appliance/chat"
	"vapp.dev/appliance/responses"
)

// State is how far the appliance is.
type State interface {
	// Phase says in a few words what it is doing, such as "loading weights".
	Phase() string
	// Service answers requests; nil while it cannot.
	Service() *chat.Service
}

// Config is what a Server stands on. Nil handlers have no route, nil functions
// are not called.
type Config struct {
	State   State
	Version string
	Metrics http.Handler // GET /metrics
	Reloads http.Handler // GET /admin/reloads
	Status  http.Handler // GET /admin/status, what Page shows
	Page    http.Handler // GET /
	// Responses stores those of /v1/responses; nil: none are stored. Close the
	// Server before it.
	Responses *responses.Store
	Observe   func(Observation)
	Log       *slog.Logger     // nil: slog.Default
	NewID     func() string    // 32 hex digits; nil: random ones
	Now       func() time.Time // nil: time.Now
	// Why is why the phase is what it is, in a line, "" where the phase says it; nil: it
	// always does.
	Why func() string
	// Load is how busy the engine is: the used share of the KV cache, 0 to 1, and the
	// requests that wait; nil: nobody can ask.
	Load func() (used float64, waiting int)
	// BodyBytes is the plan's budget of request bodies in memory; 0: BodyBudget of the
	// first settings.
	BodyBytes int64
}

// Observation is one request that has been answered, for metrics.
type Observation struct {
	Method, Handler string // Handler is the route, "" for an unknown path
	Status          int
	Duration        time.Duration
	In, Out         int64 // bytes of the bodies
}

// Server answers HTTP requests.
type Server struct {
	cfg      Config
	settings atomic.Pointer[live]
	inFlight atomic.Int64
	echo     *echo.Echo
	docs     docs

	pace     pace
	untraced sync.Once // the warning that nobody traces
	tasks    *background
	bodies   *bodies
	drains   drains
}

// New makes a server; it answers from now on, with 503 until State has a Service.
func New(c Config, s Settings) *Server {
	if c.Log == nil {
		c.Log = slog.Default()
	}
	if c.NewID == nil {
		c.NewID = randomID
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	if c.BodyBytes == 0 {
		c.BodyBytes = BodyBudget(s.MaxBodyBytes)
	}
	out := &Server{cfg: c, echo: echo.New(), tasks: newBackground(), bodies: newBodies(c.BodyBytes), drains: newDrains()}
	out.SetSettings(s)
	out.echo.HTTPErrorHandler = out.fail
	out.echo.Use(out.watch, out.recovered, out.hosts, out.cors, out.guard, out.metered)
	out.routes()
	return out
}

// SetSettings changes all settings at once, for requests that begin from now on.
// One goroutine calls it.
func (s *Server) SetSettings(n Settings) { s.settings.Store(newLive(n, s.settings.Load())) }

// Handler answers the requests.
func (s *Server) Handler() http.Handler { return s.echo }

// InFlight is how many requests with a body are open.
func (s *Server) InFlight() int { return int(s.inFlight.Load()) }

func randomID() string {
	b := make([]byte, 16)
	rand.Read(b)
	return hex.EncodeToString(b)
}
