// Package lock is what a server was agreed to be: its resolved profile, its plan
// and the files of its model, as a value that is written beside the profile and
// compared with what is there later. It reads no file; the caller gives hashes.
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

// Version is that of the file's form: it changes when a field's meaning does.
const Version = 1

// Extension is that of a lock file: chat.cue is locked by chat.lock.json.
const Extension = ".lock.json"

// FileOf is where the lock of a profile is.
func FileOf(profile string) string { return strings.TrimSuffix(profile, ".cue") + Extension }

// Lock is the content of a lock file.
type Lock struct {
	Version    int        `json:"lock_version"`
	Vapp       string     `json:"vapp"` // that planned it
	Profile    Profile    `json:"profile"`
	Machine    Machine    `json:"machine"`
	Plan       Plan       `json:"plan"`
	Checkpoint Checkpoint `json:"checkpoint"`
}

// Profile is the resolved one. A key in clear text is part of SHA256 and hidden
// in Resolved.
type Profile struct {
	SHA256   string         `json:"sha256"`
	Resolved map[string]any `json:"resolved"`
}

// Machine is what the plan was made for: the flags that named it, if any, and
// its facts.
type Machine struct {
	GPU    string         `json:"gpu,omitempty"`
	Memory string         `json:"memory,omitempty"`
	Facts  map[string]any `json:"facts"`
}

// Plan is what the server holds and carries. Sizes are bytes.
type Plan struct {
	Backend       string            `json:"backend"`
	Options       map[string]any    `json:"options"`   // as `vapp plan --json` has them
	Decisions     map[string]string `json:"decisions"` // what the plan settled
	Ledger        map[string]int64  `json:"ledger"`    // lines that are this server's memory
	TotalBytes    int64             `json:"total_bytes"`
	BudgetBytes   int64             `json:"budget_bytes"`
	KVTokens      int64             `json:"kv_tokens"`
	Sequences     map[string]int    `json:"sequences"` // by length in tokens
	GoMemoryLimit int64             `json:"go_memory_limit"`
}

// Checkpoint is the model's files. None are listed where the plan was made
// without them.
type Checkpoint struct {
	Source   string `json:"source"`
	Revision string `json:"revision,omitempty"`
	Facts    string `json:"facts"` // checkpoint, config, catalogue: what the plan was made from
	Files    []File `json:"files"`
}

// File is one of them. ModTime is what its hash was read at: a file of the same
// size and time is not read again, and a time alone is no drift.
type File struct {
	Name    string    `json:"name"` // in the model's folder
	Size    int64     `json:"size"`
	SHA256  string    `json:"sha256"`
	ModTime time.Time `json:"mtime"`
}

// Inputs is what a lock is made of.
type Inputs struct {
	Vapp        string
	Profile     *schema.Profile
	Plan        *plan.Plan
	GPU, Memory string // flags that named the machine
	Files       []File
}

// Of makes the lock.
func Of(in Inputs) (*Lock, error) {
	l := &Lock{
		Version: Version, Vapp: in.Vapp,
		Profile: Profile{SHA256: in.Profile.Hash()},
		Machine: Machine{GPU: in.GPU, Memory: in.Memory},
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
	delete(doc.Machine, "free_bytes") // of the moment
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

// transcode turns a value into the Go form of its JSON, numbers kept as written.
func transcode(from, to any) error {
	text, err := json.Marshal(from)
	if err != nil {
		return fmt.Errorf("lock: %w", err)
	}
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	return d.Decode(to)
}

// Marshal is the file's content: the same lock gives the same bytes.
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
