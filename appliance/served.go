package appliance

import (
	"cmp"
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"vapp.dev/appliance/chat"
	"vapp.dev/appliance/kvevents"
	"vapp.dev/appliance/plan"
	"vapp.dev/engine"
	"vapp.dev/engine/sample"
	"vapp.dev/schema"
)

// served is an open engine with all that belongs to it. A structural reload replaces one by another; two may be
// open at the same time.
type served struct {
	prepared  *Prepared
	engine    *engine.Engine
	adapters  *adapters // nil: no slots for LoRA adapters
	lost      []string  // adapters of the engine before it that it has not, each with the reason
	service   *chat.Service
	ledger    []plan.Line // planned and allocated bytes
	compared  time.Time   // when ledger was made
	deviceOwn int64       // bytes of the device that the engine took, if the device says it
	// estimates are the measured bytes of what the plan only estimates, by item.
	estimates map[string]int64
	unwatch   func()      // ends that the metrics show the engine; nil: they do not yet
	counted   atomic.Bool // its steps and requests are those of clients

	blocks *kvevents.Source // nil: KV events are not published

	// Guarded by the door.
	inside int           // requests
	empty  chan struct{} // closed when inside becomes 0; nil: none waits for that
	quiet  time.Time     // when inside became 0

	closed  bool // guarded by Appliance.using: the engine is closed or will be
	closing sync.Once
	failed  error // of closing
}

// admit makes s the engine of new requests, with the settings l.
func (a *Appliance) admit(s *served, l *live) {
	for _, why := range s.lost {
		a.log.Warn("a LoRA adapter of the engine before is not as it was", "adapter", why)
	}
	a.showEngine(s)
	a.watchEngine(s)
	if s.blocks != nil {
		s.blocks.MakeCurrent()
	}
	s.counted.Store(true)
	a.door.open(s, func() {
		a.current.Store(s)
		a.phase.becomeReady()
		a.apply(l.of(s))
	})
}

// showEngine shows s in the metrics.
func (a *Appliance) showEngine(s *served) {
	c := a.metricsConfig(s.prepared)
	a.metrics.Replace(c)
	s.unwatch = a.metrics.Watch(s.engine.Stats)
	if s.adapters != nil {
		a.metrics.WatchAdapters(s.adapters.use, time.Now)
	} else {
		a.metrics.WatchAdapters(nil, time.Now)
	}
	a.metrics.ResetLedger()
	a.showLedger(s.prepared)
	for _, l := range s.ledger {
		a.metrics.SetActual(l.Item, l.Actual)
	}
	for item, n := range s.estimates {
		a.metrics.SetActual(item, n)
	}
}

// openServed opens the engine of p, with the LoRA adapters of a profile, and with what it takes over. The metrics do not show it yet.
func (a *Appliance) openServed(ctx context.Context, p *Prepared, of *schema.Profile, from predecessor, progress func(engine.Progress)) (*served, error) {
	s, begun := &served{prepared: p}, time.Now()
	eng, t, err := p.open(ctx, a.hooks(s), from.weights, progress)
	if err != nil {
		return nil, err
	}
	s.engine = eng
	if from.weights == nil {
		a.loadTook.Store(int64(time.Since(begun)))
	}
	a.compare(s)
	if s.adapters = p.adapters(eng, a.log); s.adapters != nil {
		if err := s.adapters.change(ctx, nil, of); err != nil {
			return nil, errors.Join(err, eng.Close())
		}
	}
	s.lost = s.adapters.inherit(ctx, func() adapterSet { return from.adapters }, of)
	s.service = p.service(eng, s.adapters, t, a.cfg.Sandbox)
	if err := ctx.Err(); err != nil {
		return nil, errors.Join(err, eng.Close())
	}
	return s, nil
}

// whenCounted returns the hooks of the metrics, which do nothing until s serves: the request that tries an engine
// is no client's.
func (s *served) whenCounted(h engine.Hooks) engine.Hooks {
	step, finished := h.Step, h.Finished
	h.Step = func(r engine.StepStats) {
		if s.counted.Load() {
			step(r)
		}
	}
	h.Finished = func(r engine.RequestStats) {
		if s.counted.Load() {
			finished(r)
		}
	}
	return h
}

// try lets the engine compute a token, or one pooled row.
func (s *served) try(ctx context.Context) error {
	r := engine.Request{ID: "first-token", Prompt: []int32{0}, Params: sample.Default()}
	r.Params.Temperature, r.Params.MaxTokens = 0, 1
	if s.prepared.Model.Pooling != nil {
		r.Pooling = engine.PoolingLast
	}
	streams, err := s.engine.Submit(ctx, r)
	if err != nil {
		return err
	}
	defer streams[0].Cancel()
	for {
		events, err := streams[0].Next(ctx)
		if err != nil {
			return err
		}
		for _, e := range events {
			switch {
			case e.Err != nil:
				return e.Err
			case e.Token >= 0 || e.Pooled != nil:
				return nil
			}
		}
		if len(events) == 0 {
			return cmp.Or(s.engine.Err(), errors.New("the engine ended its first request without a token"))
		}
	}
}

// serving returns the engine that new requests are for, or the last one; nil until the first is loaded.
func (a *Appliance) serving() *served { return a.current.Load() }

// prepared returns the profile and plan of the engine that serves or is opened next.
func (a *Appliance) prepared() *Prepared {
	if r := a.resting.Load(); r != nil {
		return r.prepared
	}
	if s := a.serving(); s != nil {
		return s.prepared
	}
	return a.first
}

// engine returns the engine that serves; nil until it is loaded.
func (a *Appliance) engine() *engine.Engine {
	if s := a.serving(); s != nil {
		return s.engine
	}
	return nil
}

// stats returns the state of the engine that serves; the zero Stats while there is none.
func (a *Appliance) stats() engine.Stats {
	if e := a.engine(); e != nil && a.resting.Load() == nil {
		return e.Stats()
	}
	return engine.Stats{}
}

// engineError returns engine.Err of the engine that serves; nil without one.
func (a *Appliance) engineError() error {
	if e := a.engine(); e != nil {
		return e.Err()
	}
	return nil
}

// drainEngine is engine.Drain of the engine that serves.
func (a *Appliance) drainEngine(ctx context.Context) error {
	if e := a.engine(); e != nil {
		return e.Drain(ctx)
	}
	return nil
}

// closeServing closes the engine that serves, if there is one.
func (a *Appliance) closeServing() error {
	if s := a.serving(); s != nil {
		return a.closeServed(s)
	}
	return nil
}

// closeServed closes an engine when nothing reads its device. The end of the server may come while its model is being
// unloaded: the second call waits for the first.
func (a *Appliance) closeServed(s *served) error {
	s.closing.Do(func() {
		a.using.Lock()
		s.closed = true
		a.using.Unlock()
		s.failed = s.engine.Close()
		if s.unwatch != nil {
			s.unwatch()
		}
	})
	return s.failed
}

// watchEngine reports on a.dead that the engine has failed while it served.
func (a *Appliance) watchEngine(s *served) {
	go func() {
		<-s.engine.Done()
		err := s.engine.Err()
		switch {
		case !errors.Is(err, engine.ErrDead):
		case a.serving() != s:
			a.log.Error("the replaced engine failed while its last requests ran", "error", err)
		default:
			a.fatal(nil) // Run adds the engine's error
		}
	}()
}

// fatal ends Run with an error, once.
func (a *Appliance) fatal(err error) {
	select {
	case a.dead <- err:
	default:
	}
}
