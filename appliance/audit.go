package appliance

import (
	"sync"
	"time"
)

// Reload is one outcome of reading the profile again, as GET /admin/reloads
// lists it. A reading has an outcome for each class of change.
type Reload struct {
	At      time.Time `json:"at"`
	Trigger string    `json:"trigger"` // file, SIGHUP, retry
	Class   string    `json:"class"`   // live, drain, structural, none
	Outcome Outcome   `json:"outcome"`
	Hash    string    `json:"hash,omitempty"` // of the profile that was read
	Changes []string  `json:"changes,omitempty"`
	Pending []string  `json:"pending,omitempty"`   // changes that are not in force after this one
	Plan    string    `json:"plan_diff,omitempty"` // of a structural change
	Error   string    `json:"error,omitempty"`
	Note    string    `json:"note,omitempty"` // what became of keys and certificate
}

// Outcome is what became of a reload.
type Outcome string

// The outcomes.
const (
	Applied   Outcome = "applied"   // the change is in force
	Pending   Outcome = "pending"   // in force when the running requests have ended
	Reported  Outcome = "reported"  // structural: not applied, a restart would
	Withdrawn Outcome = "withdrawn" // the profile no longer has a structural change that was reported
	Rejected  Outcome = "rejected"  // the file is wrong or does not fit: what was in force stays
	Unchanged Outcome = "unchanged" // says the same as before
)

// auditSize is how many reloads are remembered.
const auditSize = 100

// audit remembers the last reloads, the newest first, and what is not in force.
type audit struct {
	mu   sync.Mutex
	list []Reload
	wait *Waiting
}

// Waiting is what of the newest profile is not in force, as GET /admin/reloads and
// GET /admin/status have it.
type Waiting struct {
	Since   time.Time `json:"since"`
	Changes []string  `json:"changes"`
	Plan    string    `json:"plan_diff,omitempty"`
	Error   string    `json:"error,omitempty"` // why a restart with it would fail
}

func (a *audit) add(r Reload) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.list = append([]Reload{r}, a.list[:min(len(a.list), auditSize-1)]...)
}

// reloads is a copy, never nil.
func (a *audit) reloads() []Reload {
	a.mu.Lock()
	defer a.mu.Unlock()
	return append([]Reload{}, a.list...)
}

// setWaiting shows what is not in force; nil: everything is.
func (a *audit) setWaiting(w *Waiting) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.wait = w
}

// waiting is what is not in force; nil: everything is.
func (a *audit) waiting() *Waiting {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.wait
}
