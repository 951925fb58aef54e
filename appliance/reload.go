package appliance

import (
	"context"
	"time"
)

// What makes the profile be read again.
const (
	TriggerFile   = "file"
	TriggerSignal = "SIGHUP"
	TriggerRetry  = "retry" // a file could not be read before
)

// Reload asks for the profile to be read again; it returns at once. Several
// requests before the reading starts are one, a signal's if any of them is: a
// signal is always answered.
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
		case <-a.kick: // ours takes its place
		default:
		}
	}
}

// Reloads are the last outcomes, the newest first.
func (a *Appliance) Reloads() []Reload { return a.audit.reloads() }

// lookEvery is how often the files are compared without an event: network file systems
// send none for what another machine writes.
const lookEvery = 30 * time.Second

// watch reads the profile again whenever its files change or somebody asks.
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
			f.follow(ctx) // the files that the profile names now, and where links lead now
		case <-look.C:
			if f.w != nil {
				a.Reload(TriggerFile)
			}
		}
	}
}

// follower keeps the watcher on the folders of the profile's files, while reload.watch says so.
type follower struct {
	a *Appliance
	w *watcher // nil: nothing is watched
}

// follow watches what the profile consists of now. What cannot be watched is tried again,
// and the files are read then.
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
		_ = f.w.close() // nothing is lost by a failure
		f.w = nil
	}
}

// notice turns bursts of file events into reloads.
func (a *Appliance) notice(ctx context.Context, w *watcher) {
	for w.wait(ctx, time.Duration(a.live.Load().profile.Reload.Debounce)) {
		a.Reload(TriggerFile)
	}
}

// watchFailed logs, once for each reason, that files are not watched, and has them read again
// later; nil: they are watched.
func (r *reloader) watchFailed(what string, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if err == nil {
		delete(r.said, "watch")
		r.unseen = false
		return
	}
	if r.said["watch"] != err.Error() {
		r.said["watch"] = err.Error()
		r.a.log.Warn(what+"; it is read again until it is, and on SIGHUP", "error", err)
	}
	r.unseen = true
	r.retry(0)
}
