package appliance

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"vapp.dev/appliance/metrics"
	"vapp.dev/schema"
)

// reloader applies changes of the profile's files: first keys and certificate, which do
// not depend on the rest of the profile (access), then the live fields; it reports the
// other changes (apply).
type reloader struct {
	a     *Appliance
	read  readFunc // tests make it fail
	now   func() time.Time
	after func(time.Duration, func()) // runs a function later

	mu        sync.Mutex // guards the fields below; held for a whole reading
	sources   sources
	hashes    hashes          // hashes of the sources, taken before the reading; nil: nothing was read yet
	reading   *schema.Reading // the newest reading
	unread    bool            // a source could not be read: read again even if the hashes are equal
	fresh     bool            // the newest reading was not applied yet
	access    *access
	reported  map[string]string    // the last recorded error of each part
	stale     map[string]time.Time // since when a part differs from what is in effect
	waiting   *Waiting             // structural changes of the newest profile
	withdrawn []string             // reported structural changes that the newest profile no longer has
	drain     *drain               // change that waits for the running requests; nil: none

	// The state of one reading.
	trigger   string
	recorded  bool     // the reading has an outcome
	changed   bool     // the content of a file changed
	lines     []string // changes of keys and certificate that no outcome contains yet
	again     bool     // the reading must be repeated
	note      string   // about keys and certificate that did not take effect; "": all did
	recovered bool     // an earlier failure no longer occurs
	failures  []string // parts that failed

	tries     int  // repetitions in a row
	scheduled bool // a repetition is scheduled
	unwatched bool // a folder is not watched: the files are read at intervals
}

// Limits of the pause before a failed reading is repeated, which doubles each time.
const (
	firstRetry = 250 * time.Millisecond
	lastRetry  = 30 * time.Second
)

func newReloader(a *Appliance, p *schema.Profile) *reloader {
	r := &reloader{
		a: a, read: func(path string) ([]byte, error) { return readSmall(path) }, now: time.Now,
		after:    func(d time.Duration, f func()) { time.AfterFunc(d, f) },
		reported: map[string]string{}, stale: map[string]time.Time{},
	}
	r.sources = sources{}.of(&schema.Reading{Profile: p, Files: p.Files(), Folders: p.Folders()})
	r.sources.files = append(r.sources.files, a.cfg.AdmitFiles...)
	r.access = newAccess(func(path string) ([]byte, error) { return r.read(path) }, func() time.Time { return r.now() })
	return r
}

// paths returns the files to watch.
func (r *reloader) paths() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	list := append(slices.Clone(r.sources.files), r.access.paths()...)
	for _, dir := range r.sources.folders {
		list = append(list, dir+"/*.cue") // the watcher uses the folder only
	}
	return list
}

// reload reads and applies the changes of the profile's files. A signal always has an
// outcome. A file event has one if the content of a file changed, and a failure has one
// for each content.
func (r *reloader) reload(trigger string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.trigger, r.recorded, r.again, r.changed, r.recovered, r.failures = trigger, false, false, false, false, nil
	r.load()
	wait := r.admitAccess()
	// While the model loads there is no engine to apply changes to.
	if r.fresh && r.a.phase.get() != Loading {
		r.apply()
	}
	r.flush()
	if (r.forced() && !r.fresh || r.recovered) && !r.recorded {
		r.record(Reload{Class: "none", Outcome: Unchanged})
	}
	r.retry(wait)
}

// unapplied reports whether a profile was read but not applied since the model was loading.
func (r *reloader) unapplied() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.fresh
}

// admitFirst makes the first engine serve, with the settings that are in force when it is loaded.
func (r *reloader) admitFirst(s *served) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.a.admit(s, r.a.live.Load())
}

// forced reports whether outcomes that were already recorded are recorded again.
func (r *reloader) forced() bool { return r.trigger == TriggerSignal }

// load reads the profile if the content of one of its files changed.
func (r *reloader) load() {
	now, failed := r.sources.hashes(r.read)
	if !r.forced() && !r.unread && r.hashes != nil && now.equal(r.hashes) {
		return
	}
	r.changed = r.hashes == nil || !now.equal(r.hashes)
	for range 3 { // read again if the profile turns out to have further files
		if r.reading = r.readProfile(); r.reading.Err != nil && failed != nil {
			break
		}
		next := r.sources.of(r.reading)
		next.files = append(next.files, r.a.cfg.AdmitFiles...)
		known := now
		r.sources = next
		now, failed = next.hashes(r.read)
		if subset(now, known) {
			now = restrict(known, now)
			break
		}
	}
	r.hashes, r.fresh = now, true
	if r.reading.Err == nil {
		r.a.declare(r.reading.Profile, r.now())
	}
	r.unread = failed != nil || schema.Passing(r.reading.Err)
	if r.unread {
		r.again = true
		r.a.metrics.CountReadFailure(metrics.PartProfile)
	}
}

// readProfile reads the profile. It first reads the file itself with r.read, which tests
// replace.
func (r *reloader) readProfile() *schema.Reading {
	p := r.a.live.Load().profile
	if _, err := r.read(p.File()); !p.InMemory() && err != nil && transient(err) {
		return &schema.Reading{Err: fmt.Errorf("%s: %w", r.a.cfg.Profile, err)}
	}
	return r.a.cfg.Machine.Read(r.a.cfg.Profile)
}

func subset(a, b hashes) bool {
	for f := range a {
		if _, in := b[f]; !in {
			return false
		}
	}
	return true
}

// restrict returns the entries of a for the files of b.
func restrict(a, b hashes) hashes {
	out := hashes{}
	for f := range b {
		out[f] = a[f]
	}
	return out
}

// admitAccess takes keys and certificate from the newest reading and applies them. It
// returns the time until the next try; 0: the usual backoff.
func (r *reloader) admitAccess() (wait time.Duration) {
	if r.fresh {
		t := extend
		if r.a.cfg.Admit != nil {
			t = revoke // new keys take effect only when the profile is admitted
		}
		r.note = noteUnread
		if s := r.reading.Access; s != nil {
			r.note = r.access.take(s, t)
		}
		r.setStale(metrics.PartKeys+" of the text", r.note == "")
	}
	return r.refreshAccess()
}

// refreshAccess reads the files of keys and certificate and applies their content.
func (r *reloader) refreshAccess() (wait time.Duration) {
	old := r.a.live.Load()
	troubles := r.access.refresh()
	next := old.with(r.access)
	changes := accessChanges(old, next)
	if len(changes) > 0 || old.api.Guarded != next.api.Guarded {
		r.a.publish(next)
		r.lines = append(r.lines, changes...)
	}
	good := map[string]bool{metrics.PartKeys: true, metrics.PartCertificate: true}
	texts := map[string][]string{}
	for _, t := range troubles {
		r.again = true
		texts[t.part] = append(texts[t.part], t.err.Error())
		good[t.part] = good[t.part] && !t.stale
		if t.read {
			r.a.metrics.CountReadFailure(t.part)
		}
		if t.wait > 0 && (wait == 0 || t.wait < wait) {
			wait = t.wait
		}
	}
	for _, part := range []string{metrics.PartKeys, metrics.PartCertificate} {
		r.setStale(part+" in files", good[part])
		r.recordFailure(part, Reload{Class: string(schema.Live), Error: strings.Join(texts[part], "\n")})
	}
	return wait
}

// accessChanges describes the changes of keys and certificate without showing keys.
func accessChanges(old, next *live) (list []string) {
	without := func(a, b []string) (n int) {
		for _, k := range a {
			if !slices.Contains(b, k) {
				n++
			}
		}
		return n
	}
	if added, revoked := without(next.api.Keys, old.api.Keys), without(old.api.Keys, next.api.Keys); added+revoked > 0 {
		list = append(list, fmt.Sprintf("serve.apiKeys: %d added, %d revoked (live)", added, revoked))
	}
	if old.cert != next.cert {
		list = append(list, "serve.tls: another certificate (live)")
	}
	return list
}

// flush records changes of keys and certificate that no other outcome contains.
func (r *reloader) flush() {
	if len(r.lines) > 0 {
		r.record(Reload{Class: string(schema.Live), Outcome: Applied, Changes: r.lines})
	}
	r.lines = nil
}

// retry schedules another reading if this one failed, else resets the backoff.
func (r *reloader) retry(wait time.Duration) {
	switch {
	case !r.again && !r.unwatched:
		r.tries = 0
		return
	case r.scheduled:
		return
	}
	d := min(firstRetry<<min(r.tries, 20), lastRetry)
	if wait > 0 {
		d = min(d, wait)
	}
	r.tries++
	r.scheduled = true
	r.after(d, func() {
		r.mu.Lock()
		r.scheduled = false
		r.mu.Unlock()
		r.a.Reload(TriggerRetry)
	})
}
