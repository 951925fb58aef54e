// Package api serves HTTP: routes, keys, limits, server-sent events, and the status
// of every error. It must not know the fields of request bodies and replies, which
// its packages openai and anthropic convert, nor how a model runs, which chat hides.
// Start reading at Server and its route table in routes.go; generate in generate.go
// answers a request for tokens.
package api

import (
	"context"
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

// State reports the startup phase of the appliance.
type State interface {
	// Phase describes the current phase in a few words, such as "loading weights".
	Phase() string
	// Ready reports whether requests are answered. They may have to wait for the model to be loaded.
	Ready() bool
	// Healthy reports whether the server works, for GET /health. One that is not ready for a while may be healthy.
	Healthy() bool
	// Enter returns the Service for one request. It may wait for it while the engine is replaced. The
	// Service stays usable until leave is called, which is called once. The error is a *chat.Error.
	Enter(context.Context) (svc *chat.Service, leave func(), err error)
}

// Config holds what a Server depends on. A nil handler has no route, a nil function
// is not called.
type Config struct {
	State   State
	Sleeper Sleeper // nil: the routes of sleeping are refused
	Version string
	Metrics http.Handler // GET /metrics
	Reloads http.Handler // GET /admin/reloads
	Status  http.Handler // GET /admin/status, what Page shows
	Drift   http.Handler // GET /admin/drift
	Page    http.Handler // GET /
	// Responses stores the responses of /v1/responses; nil: none are stored. Close
	// the Server before the store.
	Responses *responses.Store
	Observe   func(Observation)
	// Trace begins to follow a request that runs the model (trace.go); nil: none is followed.
	Trace func(ctx context.Context, header http.Header, route string) Trace
	Log   *slog.Logger     // nil: slog.Default
	NewID func() string    // 32 hex digits; nil: random ones
	Now   func() time.Time // nil: time.Now
	// Why returns the reason for the current phase in one line, "" when the phase
	// needs none; nil: no phase has a reason.
	Why func() string
	// Load returns the load of the engine: the used share of the KV cache, 0 to 1, and
	// the number of waiting requests; nil: load headers are not sent.
	Load func() (used float64, waiting int)
	// BodyBytes is the plan's memory budget for request bodies; 0: BodyBudget of the
	// first settings.
	BodyBytes int64
}

// Observation describes one answered request, for metrics.
type Observation struct {
	Method, Handler string // Handler is the route, "" for an unknown path
	Status          int
	Duration        time.Duration
	In, Out         int64 // bytes of request and reply bodies
}

// Server answers HTTP requests.
type Server struct {
	cfg      Config
	settings atomic.Pointer[live]
	inFlight atomic.Int64
	echo     *echo.Echo
	docs     docs

	completions completionRate
	untraced    sync.Once // the warning that trace headers are ignored
	tasks       *background
	bodies      atomic.Pointer[bodies]
	drains      drains
}

// New returns a server. It answers 503 until State has a Service.
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
	out := &Server{cfg: c, echo: echo.New(), tasks: newBackground(), drains: newDrains()}
	out.SetBodyBytes(c.BodyBytes)
	out.SetSettings(s)
	out.echo.HTTPErrorHandler = out.fail
	out.echo.Use(out.watch, out.recoverPanics, out.hosts, out.cors, out.guard, out.trace, out.limitKeys)
	out.routes()
	return out
}

// SetSettings replaces all settings at once, for requests that begin afterwards.
// Only one goroutine may call it.
func (s *Server) SetSettings(n Settings) { s.settings.Store(newLive(n, s.settings.Load())) }

// SetBodyBytes replaces the memory budget for request bodies. Bodies that are being read keep their part of the old one.
func (s *Server) SetBodyBytes(n int64) { s.bodies.Store(newBodies(n)) }

// Handler returns the HTTP handler of all routes.
func (s *Server) Handler() http.Handler { return s.echo }

// InFlight returns the number of requests with a body that are in progress.
func (s *Server) InFlight() int { return int(s.inFlight.Load()) }

func randomID() string {
	b := make([]byte, 16)
	rand.Read(b)
	return hex.EncodeToString(b)
}
