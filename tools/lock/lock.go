// Package lock defines lock files: the resolved profile of a server, its plan and the hashes of its
// model's files, and their comparison with the present state. It must not read files:
// tools/lock/lockfile does, and passes the hashes. Start reading at Of and Lock.Compare.
package lock

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"vapp.dev/appliance/plan"
	"vapp.dev/schema"
)

// Version is the version of the file format. It changes when the meaning of a field does.
const Version = 1

// Extension is the suffix of lock files: chat.cue is locked by chat.lock.json.
const Extension = ".lock.json"

// FileOf returns the path of a profile's lock file.
func FileOf(profile string) string { return strings.TrimSuffix(profile, ".cue") + Extension }

// Lock is the content of a lock file.
type Lock struct {
	Version    int        `json:"lock_version"`
	Vapp       string     `json:"vapp"` // version that made the lock
	Profile    Profile    `json:"profile"`
	Machine    Machine    `json:"machine"`
	Plan       Plan       `json:"plan"`
	Checkpoint Checkpoint `json:"checkpoint"`
}

// Profile is the resolved profile. SHA256 covers API keys in clear text; Resolved does not show
// them.
type Profile struct {
	SHA256   string         `json:"sha256"`
	Resolved map[string]any `json:"resolved"`
}

// Machine is the machine of the plan: the flags that named it, if any, and its facts.
type Machine struct {
	Flags
	Facts map[string]any `json:"facts"`
}

// Flags are the values of --gpu and --memory that named the machine; without them it is the
// profile's target, else this machine. Here is true if they selected this machine in place of the
// target (--gpu=).
type Flags struct {
	GPU    string `json:"gpu,omitempty"`
	Memory string `json:"memory,omitempty"`
	Here   bool   `json:"here,omitempty"`
}

// FlagsFor returns the flags to plan p with for a comparison with the lock: those of the lock, or
// none if the profile's target is not the locked one.
func (l *Lock) FlagsFor(p *schema.Profile) Flags {
	if len(trees(Field, l.Profile.Resolved["target"], p.Target)) > 0 {
		return Flags{}
	}
	return l.Machine.Flags
}

// Aimed reports whether the lock was made for a device of the catalogue or a size of memory, and
// not for the machine that made it.
func (l *Lock) Aimed() bool {
	f := l.Machine.Flags
	return f.GPU != "" || f.Memory != "" || !f.Here && l.Profile.Resolved["target"] != nil
}

// Plan is the memory and capacity of the server. Sizes are bytes.
type Plan struct {
	Backend       string            `json:"backend"`
	Options       map[string]any    `json:"options"`   // as in `vapp plan --json`
	Decisions     map[string]string `json:"decisions"` // values that the profile leaves to the plan
	Ledger        map[string]int64  `json:"ledger"`    // lines that count as memory of this server
	TotalBytes    int64             `json:"total_bytes"`
	BudgetBytes   int64             `json:"budget_bytes"`
	KVTokens      int64             `json:"kv_tokens"`
	Sequences     map[string]int    `json:"sequences"` // by length in tokens
	GoMemoryLimit int64             `json:"go_memory_limit"`
}

// Checkpoint is the model's files; none where the plan was made without them.
type Checkpoint struct {
	Source   string `json:"source"`
	Revision string `json:"revision,omitempty"`
	Facts    string `json:"facts"` // source of the plan's facts: checkpoint, config or catalogue
	Files    []File `json:"files"`
}

// File is a file of the model. A file whose size and ModTime are unchanged is not hashed again; a
// different ModTime alone is not drift.
type File struct {
	Name    string    `json:"name"` // relative to the model's folder
	Size    int64     `json:"size"`
	SHA256  string    `json:"sha256"`
	ModTime time.Time `json:"mtime"`
}

// Inputs are the values that a lock is made of.
type Inputs struct {
	Vapp    string
	Profile *schema.Profile
	Plan    *plan.Plan
	Flags   Flags
	Files   []File
}

// Of returns the lock of a planned profile.
func Of(in Inputs) (*Lock, error) {
	l := &Lock{
		Version: Version, Vapp: in.Vapp,
		Profile: Profile{SHA256: in.Profile.Hash()},
		Machine: Machine{Flags: in.Flags},
		Checkpoint: Checkpoint{
			Source: in.Profile.Model.Source, Revision: in.Profile.Model.Revision, Facts: string(in.Plan.Model.Where),
			Files: append([]File{}, in.Files...),
		},
	}
	var doc struct {
		Options map[string]any `json:"options"`
		Machine map[string]any `json:"machine"`
	}
	if err := transcode(in.Profile, &l.Profile.Resolved); err != nil {
		return nil, err
	}
	if err := transcode(in.Plan, &doc); err != nil {
		return nil, err
	}
	delete(doc.Machine, "free_bytes") // changes from moment to moment
	l.Machine.Facts, l.Plan = doc.Machine, planOf(in.Plan, doc.Options)
	return l, nil
}

func planOf(p *plan.Plan, options map[string]any) Plan {
	out := Plan{
		Backend: p.Backend, Options: options, Decisions: map[string]string{}, Ledger: map[string]int64{}, TotalBytes: p.Ledger.Total(),
		BudgetBytes: p.Budget.Bytes, KVTokens: p.Capacity.Tokens, Sequences: map[string]int{}, GoMemoryLimit: p.GoMemoryLimit,
	}
	for _, c := range p.Choices {
		out.Decisions[c.Name] = c.Value
	}
	for _, i := range p.Ledger {
		if i.Basis != plan.Apart {
			out.Ledger[i.Name] = i.Bytes
		}
	}
	for _, f := range p.Capacity.Lengths {
		out.Sequences[fmt.Sprint(f.Tokens)] = f.Sequences
	}
	return out
}

// transcode converts a value to the Go form of its JSON, with numbers as written.
func transcode(from, to any) error {
	text, err := json.Marshal(from)
	if err != nil {
		return fmt.Errorf("lock: %w", err)
	}
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	return d.Decode(to)
}

// Marshal returns the file's content; equal locks have equal bytes.
func (l *Lock) Marshal() ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetIndent("", "  ")
	e.SetEscapeHTML(false)
	if err := e.Encode(l); err != nil {
		return nil, fmt.Errorf("lock: %w", err)
	}
	return b.Bytes(), nil
}
