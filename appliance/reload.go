package appliance

import (
	"context"
	"time"
)

// Triggers of a reload.
const (
	TriggerFile   = "file"
	TriggerSignal = "SIGHUP"
	TriggerRetry  = "retry" // a file could not be read before
	TriggerSwap   = "swap"  // a change was read while the engine was replaced
)

// Reload requests that the profile is read again, and returns at once. Several requests
// before the reading starts count as one. A signal among them replaces the others, since
// a signal always gets an outcome.
func (a *Appliance) Reload(trigger string) {
	for {
		select {
		case a.kick <- trigger:
			return
		default:
		}
		if trigger != TriggerSignal {
			return
		}
		select {
		case <-a.kick: // replace the pending trigger
		default:
		}
	}
}

// Reloads returns the last outcomes, the newest first.
func (a *Appliance) Reloads() []Reload { return a.audit.reloads() }

// lookEvery is the interval at which the files are read without an event, since network
// file systems send no events for writes of other machines.
const lookEvery = 30 * time.Second

// watch reloads the profile when its files change or Reload is called.
func (a *Appliance) watch(ctx context.Context) {
	f := &follower{a: a}
	defer f.stop()
	f.follow(ctx)
	look := time.NewTicker(lookEvery)
	defer look.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case trigger := <-a.kick:
			a.reloader.reload(trigger)
			f.follow(ctx) // files and links may have changed
		case <-look.C:
			if f.w != nil {
				a.Reload(TriggerFile)
			}
		}
	}
}

// follower keeps a watcher on the folders of the profile's files while reload.watch is
// set.
type follower struct {
	a *Appliance
	w *watcher // nil: nothing is watched
}

// follow updates the watched folders to the profile's current files. A folder that cannot
// be watched is tried again later, and the files are read again then.
func (f *follower) follow(ctx context.Context) {
	r := f.a.reloader
	if !f.a.live.Load().profile.Reload.Watch {
		f.stop()
		return
	}
	if f.w == nil {
		w, err := newWatcher()
		if err != nil {
			r.watchFailed("the profile is not watched", err)
			return
		}
		f.w = w
		go f.a.notice(ctx, w)
	}
	added, err := f.w.follow(r.paths())
	r.watchFailed("a folder of the profile is not watched", err)
	if added {
		f.a.Reload(TriggerFile)
	}
}

func (f *follower) stop() {
	if f.w != nil {
		_ = f.w.close() // an error has no effect
		f.w = nil
	}
}

// notice turns bursts of file events into reloads.
func (a *Appliance) notice(ctx context.Context, w *watcher) {
	for w.wait(ctx, time.Duration(a.live.Load().profile.Reload.Debounce)) {
		a.Reload(TriggerFile)
	}
}

// watchFailed logs, once for each reason, that files are not watched, and schedules
// another reading. err is nil if they are watched.
func (r *reloader) watchFailed(what string, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if err == nil {
		delete(r.reported, "watch")
		r.unwatched = false
		return
	}
	if r.reported["watch"] != err.Error() {
		r.reported["watch"] = err.Error()
		r.a.log.Warn(what+"; it is read again until it is, and on SIGHUP", "error", err)
	}
	r.unwatched = true
	r.retry(0)
}
