package appliance

import (
	"context"
	"errors"
	"time"

	"vapp.dev/appliance/chat"
	"vapp.dev/appliance/plan"
	"vapp.dev/engine"
)

// served is an open engine with all that belongs to it. A structural reload replaces one by another; two may be
// open at the same time.
type served struct {
	prepared  *Prepared
	engine    *engine.Engine
	adapters  *adapters // nil: no slots for LoRA adapters
	service   *chat.Service
	ledger    []plan.Line // planned and allocated bytes
	compared  time.Time   // when ledger was made
	deviceOwn int64       // bytes of the device that the engine took, if the device says it
	// estimates are the measured bytes of what the plan only estimates, by item.
	estimates map[string]int64
	unwatch   func() // ends that the metrics show the engine; nil: they do not yet

	// Guarded by the door.
	inside int           // requests
	empty  chan struct{} // closed when inside becomes 0; nil: nobody waits for that
	quiet  time.Time     // when inside became 0

	closed bool // guarded by Appliance.using: the engine is closed or will be
}

// admit makes s the engine of new requests.
func (a *Appliance) admit(s *served, l *live) {
	a.showEngine(s)
	a.watchEngine(s)
	a.door.open(s, func() {
		a.current.Store(s)
		a.phase.set(Ready)
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

// openServed opens the engine of p. The metrics do not show it yet.
func (a *Appliance) openServed(ctx context.Context, p *Prepared, progress func(engine.Progress)) (*served, error) {
	eng, t, err := p.open(ctx, a.hooks(p), progress)
	if err != nil {
		return nil, err
	}
	s := &served{prepared: p, engine: eng}
	a.compare(s)
	if s.adapters = p.adapters(eng, a.log); s.adapters != nil {
		if err := s.adapters.change(ctx, nil, p.Profile); err != nil {
			return nil, errors.Join(err, eng.Close())
		}
	}
	s.service = p.service(eng, s.adapters, t, a.cfg.Sandbox)
	if err := ctx.Err(); err != nil {
		return nil, errors.Join(err, eng.Close())
	}
	return s, nil
}

// serving returns the engine that new requests are for, or the last one; nil until the first is loaded.
func (a *Appliance) serving() *served { return a.current.Load() }

// prepared returns the profile and plan of the engine that serves or is loaded first.
func (a *Appliance) prepared() *Prepared {
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

// closeServed closes an engine when nothing reads its device.
func (a *Appliance) closeServed(s *served) error {
	a.using.Lock()
	s.closed = true
	a.using.Unlock()
	err := s.engine.Close()
	if s.unwatch != nil {
		s.unwatch()
		s.unwatch = nil
	}
	return err
}

// watchEngine reports on a.dead that the engine has ended, unless it was closed.
func (a *Appliance) watchEngine(s *served) {
	go func() {
		<-s.engine.Done()
		if errors.Is(s.engine.Err(), engine.ErrDead) {
			select {
			case a.dead <- s:
			default:
			}
		}
	}()
}
