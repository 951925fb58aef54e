package appliance

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"

	"vapp.dev/appliance/front"
	"vapp.dev/appliance/metrics"
	"vapp.dev/appliance/plan"
	"vapp.dev/engine"
	"vapp.dev/engine/turns"
	"vapp.dev/schema"
)

// Fleet is several servers in one process, behind one listener: each has its profile, its keys, limits, metrics and
// reloads, and a request's model chooses one (package front). Their memory is planned together. NewFleet plans them, Run
// runs them.
type Fleet struct {
	log      *slog.Logger
	manager  systemd
	listener net.Listener
	members  []*Appliance
	heap     *heaps
	places   *residences
	shared   devicesInTurn

	hard  context.Context // cancelled by Abort
	abort context.CancelCauseFunc
}

// NewFleet plans the profiles of the configurations together and opens their listener. The errors are those of New, of
// plan.CheckTogether, and a *plan.JointError if they do not fit.
func NewFleet(all []Config) (*Fleet, error) {
	f := &Fleet{manager: newSystemd(), shared: devicesInTurn{of: map[string]*turns.Device{}}}
	f.hard, f.abort = context.WithCancelCause(context.Background())
	f.places = newResidences(f)
	prepared, err := f.prepare(all)
	if err != nil {
		return nil, err
	}
	var largest int64
	for _, p := range prepared {
		largest = max(largest, int64(p.Profile.Serve.Limits.MaxBodyBytes))
	}
	f.heap = newHeaps(len(all), largest)
	f.log, _ = newLog(all[0].Log, prepared[0].Profile.Log.Format, new(slog.LevelVar))
	if f.listener, err = f.listen(prepared[0].Profile); err != nil {
		return nil, errors.Join(err, closeAll(prepared))
	}
	for i, c := range all {
		a, err := f.add(i, c, prepared[i])
		if err != nil {
			return nil, errors.Join(err, f.close(prepared[i+1:]))
		}
		f.members = append(f.members, a)
	}
	return f, nil
}

// add makes the server of one profile.
func (f *Fleet) add(i int, c Config, p *Prepared) (*Appliance, error) {
	c.member = &member{fleet: f, index: i, ready: make(chan struct{})}
	if onRequest(p.Profile) {
		c.Residency = residence{f.places, i}
	}
	admit, onReady := c.Admit, c.OnReady
	c.Admit = func(next *Prepared) error {
		if admit != nil {
			if err := admit(next); err != nil {
				return err
			}
		}
		return f.admitChange(i, next)
	}
	c.OnReady = func() {
		if onReady != nil {
			onReady()
		}
		close(c.member.ready)
	}
	return newPrepared(c, p)
}

// onRequest reports whether the model of a profile is loaded on request.
func onRequest(p *schema.Profile) bool {
	return p.Serve.Idle != nil && p.Serve.Idle.Load == schema.OnRequest
}

// admitChange returns why a changed profile cannot run with the others.
func (f *Fleet) admitChange(i int, next *Prepared) error {
	if p := next.Profile; onRequest(p) != (f.members[i].cfg.Residency != nil) {
		return p.Reject("serve.idle.load", "which of several models have to be in memory together is decided at start: restart the server for this change")
	}
	var profiles []*schema.Profile // with the live fields in force
	var plans []*plan.Plan
	for k, a := range f.members {
		if k == i {
			profiles, plans = append(profiles, next.Profile), append(plans, next.Plan)
		} else {
			profiles, plans = append(profiles, a.live.Load().profile), append(plans, a.prepared().Plan)
		}
	}
	if err := plan.CheckTogether(profiles); err != nil {
		return err
	}
	_, err := plan.Join(plans)
	return err
}

// listen opens the listener: the socket of systemd, else serve.host and serve.port.
func (f *Fleet) listen(p *schema.Profile) (net.Listener, error) {
	l, err := f.manager.listener(firstSocket)
	if l == nil && err == nil {
		l, err = listen(p)
	}
	return l, err
}

// close closes what NewFleet has opened, and further models.
func (f *Fleet) close(more []*Prepared) error {
	errs := []error{f.listener.Close(), closeAll(more)}
	for _, a := range f.members {
		errs = append(errs, a.discard())
	}
	return errors.Join(errs...)
}

// Addr returns the listener's address.
func (f *Fleet) Addr() net.Addr { return f.listener.Addr() }

// Reload reads the profiles of all servers again.
func (f *Fleet) Reload(trigger string) {
	for _, a := range f.members {
		a.Reload(trigger)
	}
}

// Abort stops Run at once and aborts the running requests.
func (f *Fleet) Abort(why error) {
	f.abort(why)
	for _, a := range f.members {
		a.Abort(why)
	}
}

// Run serves until ctx is cancelled, then drains all servers. It loads one model after the other, in order. If a server
// fails, or its model cannot be loaded, the others drain and Run returns its error.
func (f *Fleet) Run(ctx context.Context) error {
	defer f.abort(nil)
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	server := f.members[0].newHTTP()
	server.Handler = f.handler()
	failed := f.members[0].socket.serve(server)
	f.log.Info("listening", "address", f.Addr().String(), "profiles", f.names())
	ended := make(chan error, len(f.members))
	var running sync.WaitGroup
	f.report("STATUS=loading " + f.names())
	defer context.AfterFunc(ctx, func() { f.report("STOPPING=1", "STATUS=draining") })()
	go f.load(ctx, func(a *Appliance) {
		running.Go(func() {
			err := a.Run(ctx)
			if err != nil {
				err = fmt.Errorf("%s: %w", a.first.Profile.Name, err)
			}
			ended <- err
			stop() // the others drain
		})
	})
	var errs []error
	for left := len(f.members); left > 0; {
		select {
		case err := <-ended:
			errs = append(errs, err)
			left--
		case err := <-failed:
			errs = append(errs, fmt.Errorf("serve: %w", err))
			f.Abort(err)
			failed = nil
		}
	}
	running.Wait()
	if f.hard.Err() != nil {
		return errors.Join(context.Cause(f.hard), server.Close())
	}
	return errors.Join(append(errs, server.Close())...)
}

// load runs one server after the other: each when the one before is ready or ctx ends.
func (f *Fleet) load(ctx context.Context, run func(*Appliance)) {
	for _, a := range f.members {
		run(a)
		select {
		case <-a.cfg.member.ready:
		case <-ctx.Done(): // the rest ends at once
		}
	}
	if ctx.Err() == nil {
		f.report("READY=1", "STATUS=ready: "+f.names())
		f.log.Info("all models are ready", "profiles", f.names())
	}
}

// names lists the profiles.
func (f *Fleet) names() string {
	var out []string
	for _, a := range f.members {
		out = append(out, schema.OneLine(a.first.Profile.Name))
	}
	return strings.Join(out, ", ")
}

func (f *Fleet) report(lines ...string) {
	if err := f.manager.notify(lines...); err != nil {
		f.log.Warn("the service manager was not notified", "error", err)
	}
}

// handler returns the handler of the listener.
func (f *Fleet) handler() http.Handler {
	c := front.Config{BodyPaths: f.members[0].server.BodyPaths(), Metrics: metrics.Expose, Log: f.log}
	for _, a := range f.members {
		c.Members = append(c.Members, a.frontMember())
	}
	return front.New(c)
}

// devicesInTurn are the devices that engines of this process share, by backend. Backends cpu and ref share the cores.
type devicesInTurn struct {
	mu sync.Mutex
	of map[string]*turns.Device
}

// seat returns a place at the device of a backend.
func (d *devicesInTurn) seat(backend string) engine.Turns {
	d.mu.Lock()
	defer d.mu.Unlock()
	if backend != "cuda" {
		backend = "cores"
	}
	if d.of[backend] == nil {
		d.of[backend] = turns.New(nil)
	}
	return d.of[backend].Seat()
}

// longestWait is how long requests wait for the memory of a model that cannot be in memory beside those that have
// requests.
const longestWait = 30 * time.Second
