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

// reloader makes what the profile's files say what is in force: keys and certificate at once
// and by themselves (access), then the live fields, and it reports the rest (apply).
type reloader struct {
	a     *Appliance
	read  readFunc // tests make it fail
	now   func() time.Time
	after func(time.Duration, func()) // runs a function later

	mu      sync.Mutex // of all that follows; held for a whole reading
	sources sources
	prints  prints          // of the sources, before reading was made of them; nil: none was
	reading *schema.Reading // the newest
	unread  bool            // a source could not be read: read again although no print differs
	fresh   bool            // the newest reading was not applied yet
	access  *access
	said    map[string]string    // failures that were reported, by what failed
	stale   map[string]time.Time // since when parts differ
	waiting *Waiting             // structural differences of the newest profile
	gone    []string             // structural differences that the newest profile took back
	drain   *drain               // a change that waits for the running requests; nil: none

	trigger string   // of this reading
	told    bool     // it had an outcome
	revised bool     // it found other content
	lines   []string // what changed in keys and certificate, until an outcome has it
	again   bool     // it has to be repeated
	tries   int      // repetitions in a row
	armed   bool     // one is planned
	note    string   // what of keys and certificate could not be taken over
	mended  bool     // something that failed before did not
	unseen  bool     // some folder is not watched: files are read now and then

	failures []string // what has failed in this reading
}

// The pause before a reading that failed is repeated doubles from the first to the last.
const (
	firstRetry = 250 * time.Millisecond
	lastRetry  = 30 * time.Second
)

func newReloader(a *Appliance, p *schema.Profile) *reloader {
	r := &reloader{
		a: a, read: func(path string) ([]byte, error) { return readSmall(path) }, now: time.Now,
		after: func(d time.Duration, f func()) { time.AfterFunc(d, f) },
		said:  map[string]string{}, stale: map[string]time.Time{},
	}
	r.sources = sources{}.of(&schema.Reading{Profile: p, Files: p.Files(), Folders: p.Folders()})
	r.sources.files = append(r.sources.files, a.cfg.AdmitFiles...)
	r.access = newAccess(func(path string) ([]byte, error) { return r.read(path) }, func() time.Time { return r.now() })
	return r
}

// paths are the files to watch.
func (r *reloader) paths() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	list := append(slices.Clone(r.sources.files), r.access.paths()...)
	for _, dir := range r.sources.folders {
		list = append(list, dir+"/*.cue") // its folder is what counts
	}
	return list
}

// reload reads what has changed and makes it what is in force, as far as it can be. A signal
// always has an outcome; a file event has one if the content of a file of the profile has
// changed, and a failure one for each content.
func (r *reloader) reload(trigger string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.trigger, r.told, r.again, r.revised, r.mended, r.failures = trigger, false, false, false, false, nil
	r.load()
	wait := r.admitAccess()
	// While the model is loaded there is no engine to apply anything to.
	if r.fresh && r.a.phase.get() != Loading {
		r.apply()
	}
	r.flush()
	if (r.loud() && !r.fresh || r.mended) && !r.told {
		r.record(Reload{Class: "none", Outcome: Unchanged})
	}
	r.retry(wait)
}

// unapplied reports whether a profile was read that is not in force because the model was
// being loaded.
func (r *reloader) unapplied() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.fresh
}

// loud reports whether what was reported is to be reported again.
func (r *reloader) loud() bool { return r.trigger == TriggerSignal }

// load reads the profile if the content of a file that it consists of has changed.
func (r *reloader) load() {
	now, failed := r.sources.prints(r.read)
	if !r.loud() && !r.unread && r.prints != nil && now.equal(r.prints) {
		return
	}
	r.revised = r.prints == nil || !now.equal(r.prints)
	for range 3 { // a file that is found to belong to the profile is read before it counts
		if r.reading = r.readProfile(); r.reading.Err != nil && failed != nil {
			break
		}
		next := r.sources.of(r.reading)
		next.files = append(next.files, r.a.cfg.AdmitFiles...)
		known := now
		r.sources = next
		now, failed = next.prints(r.read)
		if subset(now, known) {
			now = restrict(known, now)
			break
		}
	}
	r.prints, r.fresh = now, true
	r.unread = failed != nil || schema.Passing(r.reading.Err)
	if r.unread {
		r.again = true
		r.a.metrics.ReadFailed(metrics.PartProfile)
	}
}

// readProfile reads the profile's own file first, by the reader that tests replace.
func (r *reloader) readProfile() *schema.Reading {
	file := r.a.live.Load().profile.File()
	if _, err := r.read(file); err != nil && passing(err) {
		return &schema.Reading{Err: fmt.Errorf("%s: %w", r.a.cfg.Profile, err)}
	}
	return r.a.cfg.Machine.Read(r.a.cfg.Profile)
}

func subset(a, b prints) bool {
	for f := range a {
		if _, in := b[f]; !in {
			return false
		}
	}
	return true
}

// restrict is a with the files of b only.
func restrict(a, b prints) prints {
	out := prints{}
	for f := range b {
		out[f] = a[f]
	}
	return out
}

// admitAccess takes over what the newest reading says of keys and certificate, reads their
// files and puts them in force. It returns when to look again; 0: by the usual backoff.
func (r *reloader) admitAccess() (wait time.Duration) {
	if r.fresh {
		t := extend
		if r.a.cfg.Admit != nil {
			t = revoke // a new key is admitted with the profile
		}
		r.note = noteUnread
		if s := r.reading.Access; s != nil {
			r.note = r.access.take(s, t)
		}
		r.setStale(metrics.PartKeys+" of the text", r.note == "")
	}
	return r.refreshAccess()
}

// refreshAccess reads the files of keys and certificate and puts what they say in force.
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
			r.a.metrics.ReadFailed(t.part)
		}
		if t.wait > 0 && (wait == 0 || t.wait < wait) {
			wait = t.wait
		}
	}
	for _, part := range []string{metrics.PartKeys, metrics.PartCertificate} {
		r.setStale(part+" in files", good[part])
		r.failed(part, Reload{Class: string(schema.Live), Error: strings.Join(texts[part], "\n")})
	}
	return wait
}

// accessChanges are what is different in keys and certificate, without any key.
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

// flush records what changed in keys and certificate where no other outcome has it.
func (r *reloader) flush() {
	if len(r.lines) > 0 {
		r.record(Reload{Class: string(schema.Live), Outcome: Applied, Changes: r.lines})
	}
	r.lines = nil
}

// retry plans another reading if this one failed, or forgets that there were any.
func (r *reloader) retry(wait time.Duration) {
	switch {
	case !r.again && !r.unseen:
		r.tries = 0
		return
	case r.armed:
		return
	}
	d := min(firstRetry<<min(r.tries, 20), lastRetry)
	if wait > 0 {
		d = min(d, wait)
	}
	r.tries++
	r.armed = true
	r.after(d, func() {
		r.mu.Lock()
		r.armed = false
		r.mu.Unlock()
		r.a.Reload(TriggerRetry)
	})
}
