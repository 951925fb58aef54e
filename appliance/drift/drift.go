// Package drift compares what a profile declares with what is in force in its server, and what the plan
// gives with what the server takes. Judge turns the facts of a server into a Report, the reply of GET
// /admin/drift. It must not read files, a clock or the server: its callers do. Start reading at Report in
// this file and Judge in judge.go.
package drift

import "time"

// Kinds of drift, the values of the label kind of vapp_drift.
const (
	ProfilePending = "profile_pending" // changes of the profile are not in force
	ProfileInvalid = "profile_invalid" // the profile in the files is rejected
	Keys           = "keys"            // the files of serve.apiKeys differ from the keys in force
	Certificate    = "certificate"     // the files of serve.tls differ from the certificate in force
	Memory         = "memory"          // an arena has other bytes than planned
	RSS            = "rss"             // the process takes more of the machine's memory than planned
	Threads        = "threads"         // the process has more threads than planned
	Device         = "device"          // others take memory of the device that the plan needs
	Audit          = "audit"           // the audit log cannot be written
)

// Kinds lists every kind.
func Kinds() []string {
	return []string{ProfilePending, ProfileInvalid, Keys, Certificate, Memory, RSS, Threads, Device, Audit}
}

// Report is the reply of GET /admin/drift.
type Report struct {
	At      time.Time `json:"at"`
	Phase   string    `json:"phase"`         // loading, ready, draining, failed
	Why     string    `json:"why,omitempty"` // the error that caused phase failed
	Version string    `json:"version"`
	// Declared is the newest profile that could be read; InForce is what the server runs.
	Declared Declared  `json:"declared"`
	InForce  InForce   `json:"in_force"`
	Restart  *Restart  `json:"restart,omitempty"` // absent: no change waits
	Drift    bool      `json:"drift"`             // a finding has drift
	Findings []Finding `json:"findings"`          // one for each kind
	Fields   []Field   `json:"fields"`
	Measures []Measure `json:"measures"`
}

// Declared is a profile in its files.
type Declared struct {
	File   string    `json:"file"`
	Commit string    `json:"commit,omitempty"` // checked out in the file's git work tree when it was read
	Hash   string    `json:"hash"`
	ReadAt time.Time `json:"read_at"`
}

// InForce is what a server runs.
type InForce struct {
	Hash  string    `json:"hash"` // of the profile
	Plan  string    `json:"plan"` // digest of the plan
	Since time.Time `json:"since"`
}

// Restart holds the changes that wait: for a restart, or for the end of the running requests.
type Restart struct {
	Needed  bool      `json:"needed"` // false: they take effect when the running requests have ended
	Since   time.Time `json:"since"`
	Age     float64   `json:"age_seconds"`
	Changes []string  `json:"changes"`
	Plan    string    `json:"plan_diff,omitempty"`
	Error   string    `json:"error,omitempty"` // with which a restart would fail
	Way     string    `json:"way,omitempty"`   // in which the engine is being replaced; "": it is not
	Remedy  string    `json:"remedy"`
}

// Finding is the state of one kind of drift.
type Finding struct {
	Kind   string     `json:"kind"`
	Drift  bool       `json:"drift"`
	Since  *time.Time `json:"since,omitempty"` // absent: no drift, or it is only measured now
	Age    float64    `json:"age_seconds,omitempty"`
	What   string     `json:"what,omitempty"`
	Remedy string     `json:"remedy,omitempty"`
}

// Field is a field of the profile. Values are JSON; keys are hidden.
type Field struct {
	Path     string `json:"field"`
	Declared string `json:"declared,omitempty"`
	File     string `json:"file,omitempty"` // where it is declared
	Line     int    `json:"line,omitempty"` // 0: by default, by a flag, or in a profile without a file
	InForce  string `json:"in_force,omitempty"`
	Planned  string `json:"planned,omitempty"` // what the plan resolved it to, if it resolves it
	Class    string `json:"class,omitempty"`   // of the change, if the values differ
	Drift    bool   `json:"drift"`
}

// Measure is a quantity that the plan gives and that is measured.
type Measure struct {
	Kind     string    `json:"kind"` // memory, rss, threads, device
	Item     string    `json:"item"` // an arena, rss, threads, or "used by others"
	Unit     string    `json:"unit"` // bytes, threads
	Planned  int64     `json:"planned"`
	Measured *int64    `json:"measured"` // null: this system or device does not say it
	At       time.Time `json:"at"`       // when it was measured
	Age      float64   `json:"age_seconds"`
	Drift    bool      `json:"drift"`
}
