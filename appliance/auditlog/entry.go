// Package auditlog writes and reads the audit log of a server: a file of JSON lines with its start,
// its reloads and its end. Each entry states what was in force before and after it, so that the
// entries form a chain in which a lost, changed or inserted line shows. It must not know what a
// profile or a plan is, and a failed write must not stop the server. Start reading at Entry in this
// file, Log.Add in log.go and Scan in scan.go.
package auditlog

import "time"

// Entry is one line of the file.
type Entry struct {
	Seq     int64     `json:"seq"` // 1 for the first entry of a file, then one more for each, written or lost
	At      time.Time `json:"at"`
	Event   string    `json:"event"`             // one of the constants below
	Trigger string    `json:"trigger,omitempty"` // of a reload: file, SIGHUP, retry
	Class   string    `json:"class,omitempty"`   // of a reload: live, drain, structural, none
	Outcome string    `json:"outcome"`
	Before  State     `json:"before"`
	After   State     `json:"after"`
	Newest  string    `json:"newest,omitempty"` // hash of the profile in the files, if another one is in force
	Changes []string  `json:"changes,omitempty"`
	Pending []string  `json:"pending,omitempty"` // changes that are not in force after the event
	Error   string    `json:"error,omitempty"`
	Note    string    `json:"note,omitempty"`
	Lost    []string  `json:"lost_adapters,omitempty"` // LoRA adapters that the engine before had and the new one has not, each with the reason
}

// State identifies what is in force. Empty: nothing is, as before the first start.
type State struct {
	Profile string `json:"profile,omitempty"` // hash of the profile
	Plan    string `json:"plan,omitempty"`    // digest of the plan
}

// Events.
const (
	Start  = "start"  // the server listens, and loads the model
	Ready  = "ready"  // requests are answered
	Reload = "reload" // the profile was read again
	Sleep  = "sleep"  // the model's memory is freed
	Wake   = "wake"   // the model is loaded again
	Drain  = "drain"  // no new requests are taken
	Stop   = "stop"   // the server has ended
)

// maxLine is the greatest length of a line in bytes. Add shortens an entry that is longer.
const maxLine = 1 << 20
