package appliance

import (
	"maps"
	"sync"
	"time"
)

// Reload is one outcome of reading the profile again, as listed by GET /admin/reloads.
// A reading has an outcome for each class of change.
type Reload struct {
	At      time.Time `json:"at"`
	Trigger string    `json:"trigger"` // file, SIGHUP, retry
	Class   string    `json:"class"`   // live, drain, structural, none
	Outcome Outcome   `json:"outcome"`
	Hash    string    `json:"hash,omitempty"` // of the new profile
	Changes []string  `json:"changes,omitempty"`
	Pending []string  `json:"pending,omitempty"`   // changes that are not in effect after this reload
	Plan    string    `json:"plan_diff,omitempty"` // of a structural change
	Error   string    `json:"error,omitempty"`
	Note    string    `json:"note,omitempty"`          // about keys and certificate, or why the engine was replaced in this way
	Way     string    `json:"way,omitempty"`           // in which the engine was replaced: rebuild, beside, drain
	Gap     string    `json:"gap,omitempty"`           // for which no engine took requests meanwhile: a duration
	Lost    []string  `json:"lost_adapters,omitempty"` // LoRA adapters that the engine before had and the new one has not, each with the reason
}

// Outcome is the result of a reload.
type Outcome string

// The outcomes.
const (
	Applied   Outcome = "applied"   // the change is in effect
	Pending   Outcome = "pending"   // takes effect when the running requests have completed
	Reported  Outcome = "reported"  // structural: needs a restart
	Withdrawn Outcome = "withdrawn" // a reported structural change is no longer in the profile
	Rejected  Outcome = "rejected"  // the profile is invalid or does not fit: nothing changes
	Unchanged Outcome = "unchanged" // the profile is the same as before
)

// auditSize is the number of reloads that the audit keeps.
const auditSize = 100

// audit keeps the last reloads, the newest first, and the pending changes.
type audit struct {
	mu   sync.Mutex
	list []Reload
	wait *Waiting

	stale  map[string]time.Time // copy of reloader.stale, which is guarded for a whole reading
	failed map[string]failure   // the last error of each part, as in reloader.reported
	hash   string               // of the profile in force
	since  time.Time            // when it became that
}

// Waiting holds the changes of the newest profile that are not in effect, for
// GET /admin/reloads and GET /admin/status.
type Waiting struct {
	Since   time.Time `json:"since"`
	Restart bool      `json:"restart"` // false: the changes take effect when the running requests have ended
	Changes []string  `json:"changes"`
	Plan    string    `json:"plan_diff,omitempty"`
	Error   string    `json:"error,omitempty"` // with which a restart would fail
	Way     string    `json:"way,omitempty"`   // in which the engine is being replaced; "": it is not
	Follows bool      `json:"-"`               // the changes were read while an earlier swap ran
}

func (a *audit) add(r Reload) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.list = append([]Reload{r}, a.list[:min(len(a.list), auditSize-1)]...)
}

// reloads returns a copy of the list, never nil.
func (a *audit) reloads() []Reload {
	a.mu.Lock()
	defer a.mu.Unlock()
	return append([]Reload{}, a.list...)
}

// setWaiting stores the pending changes; nil: none.
func (a *audit) setWaiting(w *Waiting) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.wait = w
}

// waiting returns the pending changes; nil: none.
func (a *audit) waiting() *Waiting {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.wait
}

// setStale stores since when each part differs from what is in force.
func (a *audit) setStale(stale map[string]time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.stale = maps.Clone(stale)
}

// failure is the last error of a part of the profile that cannot be used.
type failure struct {
	text  string
	since time.Time // of the first error in a row
}

// setFailed stores the last error of each part.
func (a *audit) setFailed(errors map[string]string, at time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	next := map[string]failure{}
	for part, text := range errors {
		next[part] = failure{text, at}
		if was, known := a.failed[part]; known {
			next[part] = failure{text, was.since}
		}
	}
	a.failed = next
}

// setInForce stores the hash of the profile in force.
func (a *audit) setInForce(hash string, at time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.hash != hash {
		a.hash, a.since = hash, at
	}
}

// inForce returns the hash of the profile in force, and since when it is.
func (a *audit) inForce() (hash string, since time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.hash, a.since
}
