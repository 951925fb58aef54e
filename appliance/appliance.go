// Package appliance runs a server: it plans a profile, listens, loads the model,
// serves, reloads the profile, drains and closes. It is the only package that imports
// all parts. It must not contain arithmetic of plans, parsing or routes. Start reading
// at New and Appliance.Run in this file.
package appliance

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"vapp.dev/appliance/api"
	"vapp.dev/appliance/auditlog"
	"vapp.dev/appliance/kvevents"
	"vapp.dev/appliance/media/load"
	"vapp.dev/appliance/metrics"
	"vapp.dev/appliance/page"
	"vapp.dev/appliance/plan"
	"vapp.dev/appliance/responses"
	"vapp.dev/appliance/traces"
	"vapp.dev/engine"
	"vapp.dev/engine/tokenizer"
	"vapp.dev/schema"
)

// Config holds the arguments of New.
type Config struct {
	Profile string // path
	Machine Machine
	Version string
	Log     io.Writer
	// Progress is called with the progress of loading; nil: not called.
	Progress func(engine.Progress)
	// Sandbox renders the templates of requests.
	Sandbox tokenizer.Sandbox
	// Admit is called before a profile takes effect, at start and on reload. Its error
	// rejects the profile. nil: every profile is admitted.
	Admit func(*Prepared) error
	// AdmitFiles are the files that Admit reads. A change of one reloads the profile.
	AdmitFiles []string
	// PrivateKey makes a server for one client on this machine: it listens on a free port
	// of the loopback address, accepts this key only, and does not watch the profile. "":
	// the profile decides.
	PrivateKey string
	// Residency decides when the model may be in memory if serve.idle unloads it; nil: at any time.
	Residency Residency
	// OnReady is called when the model is loaded; nil: not called.
	OnReady func()

	member *member // of a Fleet; nil: the server has process and listener alone
}

// Appliance is one server. New plans it, Run runs it.
type Appliance struct {
	cfg   Config
	log   *slog.Logger
	level *slog.LevelVar
	// setFormat sets the format of log.
	setFormat func(string)
	first     *Prepared // of the engine that is loaded first
	metrics   *metrics.Metrics
	server    *api.Server
	phase     phase
	handling  atomic.Int64 // HTTP requests without a complete reply
	socket    endpoint
	manager   systemd

	// live holds everything that can change without a new engine. It is replaced as a
	// whole.
	live      atomic.Pointer[live]
	media     load.Memory            // of the loaders of all lives whose requests run
	current   atomic.Pointer[served] // the newest engine that served; set before the phase is Ready
	door      *door                  // lets requests in to it
	dead      chan error             // an engine that serves has failed, or none can be opened
	responses *responses.Store       // nil: responses are not stored
	events    *kvevents.Publisher    // nil: KV events are not published
	traces    *traces.Tracer         // nil: requests are not traced
	swaps     swaps
	resting   atomic.Pointer[rest] // nil: an engine serves, or is loaded first
	loadTook  atomic.Int64         // nanoseconds of the last load of weights
	loading   solo                 // the load of a resting model
	// decide is transition; tests replace it.
	decide func(a *Appliance, old *served, next *Prepared) (plan.Transition, error)

	audit    audit
	auditLog *auditlog.Log // nil: none
	declared atomic.Pointer[declared]
	kinds    recentKinds        // of drift, for the metrics
	process  func() (use, bool) // what this process takes, for drift; tests replace it
	using    sync.Mutex         // guards served.closed, and is held while a device is asked for its memory

	reloader *reloader
	kick     chan string     // a trigger for the reload goroutine
	hard     context.Context // cancelled by Abort
	abort    context.CancelCauseFunc
}

// New plans the profile and opens the listener. It returns an error of the profile, the
// model or the machine before it loads anything.
func New(c Config) (*Appliance, error) {
	p, err := Prepare(c.Profile, c.Machine)
	if err != nil {
		return nil, err
	}
	if c.Admit != nil {
		if err := c.Admit(p); err != nil {
			return nil, errors.Join(err, p.Close())
		}
	}
	return newPrepared(c, p)
}

// newPrepared is New for a planned profile, which it closes if it fails.
func newPrepared(c Config, p *Prepared) (*Appliance, error) {
	manager := newSystemd()
	if c.member != nil {
		manager = noManager() // the fleet is the unit's
	}
	if c.PrivateKey != "" {
		manager = noManager()
		if err := private(p.Profile, c.PrivateKey); err != nil {
			return nil, errors.Join(err, p.Close())
		}
	}
	a := &Appliance{cfg: c, first: p, level: &slog.LevelVar{}, kick: make(chan string, 1), dead: make(chan error, 1), manager: manager, process: recentUse(), decide: (*Appliance).transition}
	a.door = newDoor(a.notReady)
	a.hard, a.abort = context.WithCancelCause(context.Background())
	a.log, a.setFormat = newLog(c.Log, p.Profile.Log.Format, a.level)
	a.joinFleet(p)
	if err := a.begin(); err != nil {
		return nil, errors.Join(err, p.Close())
	}
	return a, nil
}

func (a *Appliance) begin() error {
	p := a.first
	if err := p.startable(); err != nil {
		return err
	}
	l, err := a.newLive(p.Profile, p.Model)
	if err != nil {
		return err
	}
	a.reloader = newReloader(a, p.Profile)
	if err := a.reloader.access.begin(p.Profile); err != nil {
		return err
	}
	l = l.with(a.reloader.access)
	store, err := openResponses(p.Profile)
	if err != nil {
		return err
	}
	if a.responses = store; store != nil {
		defer func() {
			if a.socket.socket == nil {
				store.Close()
			}
		}()
	}
	if a.events, err = p.openEvents(a.log); err != nil {
		return err
	}
	defer func() {
		if a.socket.socket == nil {
			a.closeEvents()
			a.closeTraces()
		}
	}()
	if a.traces, err = a.openTraces(p.Profile); err != nil {
		return err
	}
	if err := p.summarize(); err != nil {
		return err
	}
	a.metrics = a.newMetrics()
	a.declare(p.Profile, a.reloader.now())
	a.auditLog = a.openAudit(p.Profile)
	a.server = api.New(api.Config{
		State: a, Sleeper: a, Version: a.cfg.Version, Metrics: a.metrics.Handler(), Reloads: http.HandlerFunc(a.serveReloads), Log: a.log, BodyBytes: p.Plan.BodyBytes,
		Responses: a.responses,
		Page:      page.Handler(), Status: http.HandlerFunc(a.serveStatus), Drift: http.HandlerFunc(a.serveDrift),
		Why:     a.why,
		Load:    func() (float64, int) { e := a.stats(); return e.KVUsed, e.Waiting },
		Observe: func(o api.Observation) { a.metrics.ObserveRequest(metrics.HTTPRequest(o)) },
		Trace:   a.traceHook(),
	}, l.api)
	if err := a.listen(); err != nil {
		return err
	}
	a.apply(l)
	a.metrics.WatchQueue(a.door.queue)
	a.metrics.WatchDrift(a.driftKinds, a.lostEntries)
	if target, machine := p.OffTarget(); target != "" {
		a.log.Info("this machine is not the profile's target", "target", target, "machine", machine)
	}
	return nil
}

// Addr returns the listener's address.
func (a *Appliance) Addr() net.Addr { return a.socket.addr() }

// url returns the base URL of the API for a client on this machine.
func (a *Appliance) url() string {
	host, port, err := net.SplitHostPort(a.Addr().String())
	if err != nil {
		return a.Addr().String()
	}
	if ip := net.ParseIP(host); ip == nil || ip.IsUnspecified() {
		host = "localhost"
	}
	return a.scheme() + "://" + net.JoinHostPort(host, port) + "/v1"
}

// Abort stops Run at once and aborts the running requests.
func (a *Appliance) Abort(why error) { a.abort(why) }

// Run serves until ctx is cancelled, then drains: it refuses new requests, waits for the
// running ones up to serve.drainTimeout, and returns nil when all have completed. Its
// steps: answer HTTP (503 with the phase), watch the profile (reload.go), load the model
// (load.go), wait for ctx, Abort or a failure of listener or engine, drain.
func (a *Appliance) Run(ctx context.Context) (ended error) {
	defer func() { a.noteStop(ended) }()
	a.note(auditlog.Entry{Event: auditlog.Start, Outcome: "loading", After: a.state()})
	hard := a.hard
	defer a.abort(nil)
	abandoned := false // a load that did not stop may still read the model
	defer func() {
		if !abandoned {
			a.prepared().Close()
		}
	}()
	defer a.closeResting()
	defer a.closeResponses()
	defer a.closeEvents()
	defer a.closeTraces()
	a.limitHeap(a.first.Plan.GoMemoryLimit)
	server, failed := a.beginServing()
	a.server.LogRoutes()
	a.log.Info("listening", "address", a.Addr().String(), "profile", a.cfg.Profile)
	a.logEvents()
	a.logTraces()
	a.report("STATUS=loading " + schema.OneLine(a.first.Model.Source.Name))
	a.swaps.start(ctx, hard)
	background, stop := context.WithCancel(hard)
	var tasks sync.WaitGroup
	defer tasks.Wait()
	defer stop()
	tasks.Go(func() { a.watch(background) }) // so that keys can be revoked while the model loads
	loading, stopLoading := context.WithCancel(ctx)
	defer stopLoading()
	defer context.AfterFunc(hard, stopLoading)()
	var err error
	if abandoned, err = a.watchLoad(loading, func(progress func(engine.Progress)) error {
		return a.load(loading, func(p engine.Progress) {
			if a.cfg.Progress != nil {
				a.cfg.Progress(p)
			}
			progress(p)
		})
	}); err != nil {
		server.Close()
		if ctx.Err() != nil && hard.Err() == nil {
			a.log.Info("stopped while loading")
			return nil
		}
		return errors.Join(context.Cause(hard), err)
	}
	if a.reloader.unapplied() {
		a.Reload(TriggerFile)
	}
	tasks.Go(func() { a.statistics(background) })
	tasks.Go(func() { a.watchIdle(background) })
	select {
	case <-ctx.Done():
	case <-hard.Done():
	case err := <-failed:
		abandoned = !a.swaps.end(endLoad)
		return errors.Join(fmt.Errorf("serve: %w", err), a.closeServing())
	case err := <-a.dead:
		abandoned = !a.swaps.end(endLoad)
		return errors.Join(err, a.fail(hard, server))
	}
	abandoned = !a.swaps.stopOpening(endLoad)
	return a.drain(hard, server)
}

// failGrace is the time for handlers to write errors after the engine failed. Tests
// change it.
var failGrace = 5 * time.Second

// fail stops the server after a failure of the engine. Until all handlers have written
// the error, or failGrace has passed, the server still answers status requests.
func (a *Appliance) fail(hard context.Context, server handlers) error {
	grace, stop := context.WithTimeout(hard, failGrace)
	defer stop()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for a.handling.Load() > 0 && grace.Err() == nil {
		select {
		case <-tick.C:
		case <-grace.Done():
		}
	}
	_ = server.Shutdown(grace)
	return errors.Join(a.engineError(), a.closeServing(), server.Close())
}

// drain waits for the running requests and closes the server. hard ends the wait.
func (a *Appliance) drain(hard context.Context, server handlers) error {
	a.phase.set(Draining)
	a.door.close(a.notReady)
	a.note(auditlog.Entry{Event: auditlog.Drain, Outcome: "draining", After: a.state()})
	limit := time.Duration(a.live.Load().profile.Serve.DrainTimeout)
	running := a.stats()
	a.report("STOPPING=1", fmt.Sprintf("STATUS=draining: %d requests running, %d waiting, at most %s", running.Running, running.Waiting, limit))
	facts := []any{"running", running.Running, "waiting", running.Waiting, "timeout", limit.String()}
	if running.Running+running.Waiting > 0 {
		facts = append(facts, "second_signal", "aborts them")
	}
	a.log.Info("draining", facts...)
	soft, stop := context.WithTimeout(hard, limit)
	defer stop()
	err := a.drainEngine(soft)
	if errors.Is(a.engineError(), engine.ErrDead) {
		return a.fail(hard, server)
	}
	if err == nil {
		// Let the handlers write the last tokens.
		err = server.Shutdown(soft)
	}
	left := a.stats()
	closed := errors.Join(a.closeServing(), server.Close())
	switch {
	case hard.Err() != nil:
		return context.Cause(hard)
	case errors.Is(a.engineError(), engine.ErrDead):
		return errors.Join(a.engineError(), closed)
	case err != nil:
		return errors.Join(fmt.Errorf("drain: requests that had not ended after %s were aborted: %d; serve.drainTimeout is the limit", limit, left.Running+left.Waiting), closed)
	}
	a.log.Info("drained")
	return closed
}
