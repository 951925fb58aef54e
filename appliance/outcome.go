package appliance

import (
	"slices"
	"strings"
	"time"
)

// record adds an outcome to the audit, the metrics and the log.
func (r *reloader) record(o Reload) {
	o.At = r.now()
	if o.Trigger == "" {
		o.Trigger, r.recorded = r.trigger, true
	}
	if r.reading != nil && r.reading.Profile != nil {
		o.Hash = r.reading.Profile.Hash()
	}
	if r.waiting != nil && o.Outcome != Reported {
		o.Pending = r.waiting.Changes
	}
	r.a.metrics.CountReload(o.Class, string(o.Outcome), o.At)
	r.a.audit.add(o)
	r.a.noteReload(o)
	r.log(o)
}

func (r *reloader) log(o Reload) {
	args := []any{"trigger", o.Trigger, "class", o.Class, "outcome", o.Outcome}
	add := func(name, text string) {
		if text != "" {
			args = append(args, name, text)
		}
	}
	add("error", o.Error)
	add("note", o.Note)
	add("changes", strings.Join(o.Changes, "; "))
	if o.Outcome != Rejected {
		add("pending", strings.Join(o.Pending, "; "))
	}
	add("gap", o.Gap)
	add("lost adapters", strings.Join(o.Lost, "; "))
	add("plan", o.Plan)
	switch {
	case o.Error != "":
		r.a.log.Error("profile reload", args...)
	case o.Outcome == Reported:
		r.a.log.Warn("profile reload: a structural change needs a restart", args...)
	default:
		r.a.log.Info("profile reload", args...)
	}
}

// recordFailure records a failure once for each error text, and for the profile once for each
// content. An o without Error clears an earlier failure; the recovery is an outcome too.
func (r *reloader) recordFailure(what string, o Reload) {
	if o.Error == "" {
		if r.reported[what] != "" {
			delete(r.reported, what)
			r.a.audit.setFailed(r.reported, r.now())
			r.recovered = true
		}
		return
	}
	again := r.forced() || r.changed && (what == "profile" || what == "live")
	if r.reported[what] == o.Error && !again || slices.Contains(r.failures, what) {
		return
	}
	r.reported[what] = o.Error
	r.a.audit.setFailed(r.reported, r.now())
	r.failures = append(r.failures, what)
	o.Outcome = Rejected
	r.record(o)
}

// setStale stores whether the files agree with what is in effect. The first word of what
// is a part that the metrics have.
func (r *reloader) setStale(what string, agree bool) {
	if _, since := r.stale[what]; agree {
		delete(r.stale, what)
	} else if !since {
		r.stale[what] = r.now()
	}
	r.a.audit.setStale(r.stale)
	part, _, _ := strings.Cut(what, " ")
	var first time.Time
	for w, since := range r.stale {
		if strings.HasPrefix(w, part+" ") && (first.IsZero() || since.Before(first)) {
			first = since
		}
	}
	r.a.metrics.SetStale(part, first)
}

// Notes about keys and certificate for a rejected profile.
const (
	noteUnread  = "keys in clear text and the names of files stay as they were; the files of keys and certificate are read"
	noteOpen    = "serve.apiKeys is empty or missing: the keys stay in force and the server is not opened"
	noteRevoked = "keys that serve.apiKeys no longer has are revoked; none is added"
)
