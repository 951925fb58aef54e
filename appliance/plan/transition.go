package plan

import (
	"fmt"

	"vapp.dev/engine"
	"vapp.dev/engine/backend"
	"vapp.dev/schema"
)

// Way is how a new engine takes the place of a running one.
type Way string

// The ways.
const (
	Rebuild Way = "rebuild" // the weights are the same: their arena stays, KV cache and graphs are made anew
	Beside  Way = "beside"  // both engines fit: the old one serves until the new one has generated a token
	Drain   Way = "drain"   // the old engine ends before the new one is opened
)

// ChangeInputs is everything that a Transition depends on.
type ChangeInputs struct {
	Old, New *Plan
	// OldFiles is the fingerprint of the files that Old's weights were packed from (backend.WeightsInfo.Source, or
	// engine.Model.Fingerprint if no engine runs), NewFiles that of New's.
	OldFiles, NewFiles [32]byte
	// Mode is reload.structural. "drain" never has two engines at once. "report" gives what "swap" would do.
	Mode         string
	Several      bool            // the server has other models, which may take all other memory: never two engines at once
	DrainTimeout schema.Duration // serve.drainTimeout
	Loaded       schema.Duration // what loading Old's weights took; 0: unknown

	// Running means that an engine of Old runs in this process, so that New's Facts.FreeBytes is free beside it.
	// Otherwise the limit is the device's memory.
	Running bool
	// Resident is what this process has of the memory of New's ledger; 0: the arenas of Old. Host is the memory of
	// the machine if that ledger is of a GPU.
	Resident int64
	Host     HostMemory
}

// HostMemory is the memory of the machine, in bytes. Zero fields are unknown, and nothing is compared with them.
type HostMemory struct {
	Total, Free int64
	Resident    int64 // what this process has of it
}

// Transition is how a structural change takes effect.
type Transition struct {
	Way          Way    `json:"way"`
	Mode         string `json:"mode"`          // reload.structural
	KeepsWeights bool   `json:"keeps_weights"` // the new engine uses the old one's weights, also after that is closed
	Overlaps     bool   `json:"overlaps"`      // both engines exist at the same time: there is no gap
	Footprint
	Host *Footprint `json:"host,omitempty"` // of a GPU's server: the machine's memory
	Why  string     `json:"why"`            // one sentence with the figures
	Gap  Gap        `json:"gap"`
	// PrefixCache says what becomes of cached prefixes.
	PrefixCache string `json:"prefix_cache"`
	// Ledger is what the server takes at most during the change: of both engines with shared weights once if they
	// overlap, else of the new one. GoMemoryLimit belongs to it.
	Ledger        Ledger `json:"ledger"`
	GoMemoryLimit int64  `json:"go_memory_limit"`
}

// Footprint is what two engines take of a memory, in bytes.
type Footprint struct {
	Old    int64  `json:"old_bytes"` // of the old engine alone, without memory.reserve
	New    int64  `json:"new_bytes"` // of the new one alone
	Shared int64  `json:"shared_bytes"`
	Peak   int64  `json:"peak_bytes"`  // of both at once, with memory.reserve
	Limit  int64  `json:"limit_bytes"` // 0: unknown
	Rule   string `json:"rule"`        // how Limit was computed
}

// fits reports whether both engines fit at once.
func (r *Footprint) fits() bool { return r.Limit > 0 && r.Peak <= r.Limit }

// Gap is the time in which no engine takes requests; they wait (reload.queue).
type Gap struct {
	Drain schema.Duration `json:"drain"` // at most: running requests end, or are aborted
	Load  schema.Duration `json:"load"`  // about; 0: unknown
	Basis string          `json:"basis"` // of Load: "last load", "memory rate" (a lower bound), ""
}

// NewTransition decides how an engine of in.New takes the place of one of in.Old. The error is a *schema.Error if a model has several
// ranks, a *NotFreeError or a *LimitError if the new engine does not fit even alone.
//
// What the load needs beyond the ledger is page cache of the model's files, which is clean and which the system drops; packing works
// in the new engine's part of the Go heap, and pinned staging is a line of the ledger.
func NewTransition(in ChangeInputs) (Transition, error) {
	for _, p := range []*Plan{in.Old, in.New} {
		if err := p.refuseRanks(); err != nil {
			return Transition{}, err
		}
	}
	weights := in.New.PlannedWeights(in.NewFiles)
	differ := engine.SameWeights(in.Old.PlannedWeights(in.OldFiles), weights)
	t := Transition{Way: Beside, Mode: in.Mode, KeepsWeights: differ == nil, PrefixCache: "starts empty: its pages are in the KV cache of the old engine"}
	if !in.Old.Options.PrefixCaching {
		t.PrefixCache = "there is none"
	}
	both := join(in.Old, in.New, t.KeepsWeights)
	t.Footprint = in.footprint(both, t.KeepsWeights)
	if in.New.resolved.onGPU() {
		t.Host = in.hostFootprint(both, t.KeepsWeights)
	}
	if err := in.alone(t); err != nil {
		return Transition{}, err
	}
	obstacle := in.obstacle(&t, weights.OneAtATime())
	t.Overlaps = obstacle == ""
	t.Ledger, t.GoMemoryLimit = both, add(in.Old.GoMemoryLimit, in.New.GoMemoryLimit)
	if in.Old.Backend == "ref" && in.New.Backend == "ref" {
		t.GoMemoryLimit -= t.Shared
	}
	if !t.Overlaps {
		t.Ledger, t.GoMemoryLimit = in.New.Ledger, in.New.GoMemoryLimit
		t.Gap = in.gap(t.KeepsWeights)
	}
	switch {
	case t.KeepsWeights:
		t.Way = Rebuild
	case !t.Overlaps:
		t.Way = Drain
	}
	t.Why = t.why(differ, obstacle)
	return t, nil
}

// PlannedWeights describes the weights of the plan's engine, packed from files with that fingerprint.
func (p *Plan) PlannedWeights(files [32]byte) engine.PlannedWeights {
	in := p.resolved.in
	return engine.Config{Model: in.Model, Opener: in.Opener, Facts: p.Facts, Account: p.Account}.PlannedWeights(files)
}

// refuseRanks refuses a model with several ranks.
func (p *Plan) refuseRanks() error {
	if p.Ranks <= 1 {
		return nil
	}
	q, path := p.resolved.in.Profile, "parallel.tensor"
	if q.Parallel.Tensor <= 1 {
		path = "parallel.pipeline"
	}
	return q.Reject(path, "the model has %d ranks, whose engines cannot be replaced while they serve; leave reload.structural at \"report\" and restart all ranks", p.Ranks)
}

// alone returns an error unless the new engine fits when the old one is closed.
func (in ChangeInputs) alone(t Transition) error {
	need := add(t.New, in.New.Ledger.Bytes(reserveItem))
	if t.Limit > 0 && need > t.Limit {
		return &NotFreeError{need, t.Limit}
	}
	if h := t.Host; h != nil && h.Limit > 0 && h.New > h.Limit {
		return &NotFreeError{h.New, h.Limit}
	}
	if !in.Running {
		return nil
	}
	freed := in.Old.arenas()
	if t.KeepsWeights { // they stay, and are counted as used
		freed = 0
		for _, i := range in.Old.Ledger {
			if i.Basis == Exact && i.Name != backend.Weights.String() {
				freed = add(freed, i.Bytes)
			}
		}
	}
	return in.New.checkLimits(freed, t.Shared)
}

// obstacle returns why both engines cannot exist at once; "" if they can.
func (in ChangeInputs) obstacle(t *Transition, oneAtATime bool) string {
	what := "both engines"
	if t.KeepsWeights {
		what = "both KV caches"
	}
	switch r := t.tight(); {
	case in.Mode == schema.DrainFirst:
		return "reload.structural is \"drain\""
	case in.Several:
		return "the memory beside it is that of the server's other models"
	case t.KeepsWeights && oneAtATime:
		return "their LoRA slots serve one engine at a time"
	case r.Limit == 0:
		return fmt.Sprintf("the memory of %s is unknown, so that %s are not tried at once", in.New.Facts.Device, what)
	case !r.fits():
		where, hint := "", ""
		if r == t.Host {
			where = " in the machine's memory"
		} else if in.New.utilization > 0 {
			hint = " (a fixed memory.kvCache leaves memory for both)"
		}
		return fmt.Sprintf("%s do not fit at once%s: %s, %s missing%s", what, where, r.of(), Size(r.Peak-r.Limit), hint)
	}
	if in.Running {
		if err := in.New.checkLimits(0, t.Shared); err != nil {
			return err.Error()
		}
	}
	return ""
}

// tight returns the memory that decides: the host's if both engines fit on the device and not there.
func (t *Transition) tight() *Footprint {
	if h := t.Host; h != nil && h.Limit > 0 && t.fits() && !h.fits() {
		return h
	}
	return &t.Footprint
}
