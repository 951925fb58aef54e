package appliance

import (
	"sync"
	"time"
)

// Reload is one outcome of reading the profile again, as GET /admin/reloads
// lists it.
type Reload struct {
	At      time.Time `json:"at"`
	Trigger string    `json:"trigger"` // file, SIGHUP
	Class   string    `json:"class"`   // live, drain, structural, none
	Outcome Outcome   `json:"outcome"`
	Hash    string    `json:"hash,omitempty"` // of the profile that was read
	Changes []string  `json:"changes,omitempty"`
	Plan    string    `json:"plan_diff,omitempty"` // of a structural change
	Error   string    `json:"error,omitempty"`
}

// Outcome is what became of a reload.
type Outcome string

// The outcomes.
const (
	Applied   Outcome = "applied"   // the change is in force
	Pending   Outcome = "pending"   // in force when the running requests have ended
	Reported  Outcome = "reported"  // structural: not applied, a restart would
	Rejected  Outcome = "rejected"  // the file is wrong or does not fit: the last good profile stays
	Unchanged Outcome = "unchanged" // says the same as before
)

// auditSize is how many reloads are remembered.
const auditSize = 100

// audit remembers the last reloads, the newest first.
type audit struct {
	mu   sync.Mutex
	list []Reload
}

func (a *audit) add(r Reload) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.list = append([]Reload{r}, a.list[:min(len(a.list), auditSize-1)]...)
}

// reported says that r is a structural change and the newest reload was the same one.
func (a *audit) reported(r Reload) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return r.Outcome == Reported && len(a.list) > 0 && a.list[0].Outcome == Reported && a.list[0].Hash == r.Hash
}

// reloads is a copy, never nil.
func (a *audit) reloads() []Reload {
	a.mu.Lock()
	defer a.mu.Unlock()
	return append([]Reload{}, a.list...)
}
