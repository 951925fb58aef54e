package plan

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"vapp.dev/schema"
)

// Joint is the plan of several models in one process on one machine, behind one listener. What the
// process has once is counted once. It is immutable.
type Joint struct {
	Members []Member
	// Sets are the largest sets of models loaded on request that can be in memory at once, beside
	// those that are loaded at start: indices of Members. Empty: no model is loaded on request, or
	// there are more than MostListed.
	Sets   [][]int
	places []place
}

// MostListed is how many models loaded on request a Joint lists the sets of: their number doubles
// with each. A server holds to the memory, not to the list.
const MostListed = 12

// Member is the plan of one of the models.
type Member struct {
	Profile   string // its name
	File      string
	OnRequest bool // serve.idle.load: the model need not be in memory
	Plan      *Plan
	Load      Load

	profile *schema.Profile
	w       resolved
	takes   []takes // by place
}

// Load is what a request waits for whose model is not in memory.
type Load struct {
	Bytes int64 `json:"bytes"` // of weights to read and pack
	// AtLeast is the time to read and write them once at the rate of memory, in seconds; 0: the rate
	// is unknown. Reading from a disk takes longer.
	AtLeast float64 `json:"at_least_seconds"`
	Rule    string  `json:"rule"`
}

// place is memory that the models share: the machine's, or that of a device.
type place struct {
	name   string
	total  int64 // bytes; 0: unknown
	shared Ledger
}

// takes is what a member takes of a place.
type takes struct {
	loaded   Ledger // while its model is in memory
	unloaded Ledger
}

// unloadedHeap is the bound of what a server takes while its model is not in memory, beyond the
// headers of the model's files: routes, metrics, settings (with SmolLM2 5.6 MB of resident memory
// in all). Requests that wait for the model have their bodies at the listener.
const unloadedHeap = 16 << 20

// frontBytes is what the listener's handler takes for bodies whose model it looks for
// (appliance/front).
func frontBytes(largest int64) int64 { return add(4<<20, max(64<<10, largest)) }

// MakeJoint plans several profiles for one machine. The errors are those of CheckTogether, those of
// Make for one of the profiles, and a *JointError if the models do not fit together.
func MakeJoint(all []Inputs) (*Joint, error) {
	var profiles []*schema.Profile
	for _, in := range all {
		profiles = append(profiles, in.Profile)
	}
	if err := CheckTogether(profiles); err != nil {
		return nil, err
	}
	var plans []*Plan
	var errs []error
	for _, in := range all {
		p, err := Make(in)
		plans, errs = append(plans, p), append(errs, err)
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	return Join(plans)
}

// Join returns the joint plan of plans for one machine. The error is a *JointError. It does not
// compare the profiles.
func Join(plans []*Plan) (*Joint, error) {
	j := assemble(plans)
	if err := j.join(); err != nil {
		return nil, err
	}
	return j, nil
}

// FitTogether reports whether the models of some of the plans, by index, can be in memory at once
// while the others are not.
func FitTogether(plans []*Plan, loaded []int) bool { return assemble(plans).Fits(loaded) }

func assemble(plans []*Plan) *Joint {
	j := &Joint{}
	for _, p := range plans {
		j.Members = append(j.Members, member(p.resolved.in, p))
	}
	j.split()
	return j
}

func member(in Inputs, p *Plan) Member {
	file := in.Profile.Pos("name").File
	idle := in.Profile.Serve.Idle
	return Member{
		Profile: in.Profile.Name, File: file, Plan: p, profile: in.Profile, w: p.resolved,
		OnRequest: idle != nil && idle.Load == schema.OnRequest,
		Load:      p.load(),
	}
}

// load returns what loading the model takes.
func (p *Plan) load() Load {
	l := Load{Bytes: p.resolved.mappedBytes()}
	if l.Bytes == 0 { // of the catalogue, or without files
		l.Bytes = p.Ledger.Bytes("weights")
	}
	r, err := p.ratesOf()
	switch {
	case p.Backend == "cuda":
		l.Rule = "unknown: no rate of this machine's disk and bus was measured"
	case err != nil || r.Rates.Read <= 0:
		l.Rule = "unknown: there are no rates of this machine (vapp doctor --measure)"
	default:
		l.AtLeast = 2 * float64(l.Bytes) / r.Rates.Read
		l.Rule = fmt.Sprintf("read and written once at %.1f GB/s, %s; a disk is slower", r.Rates.Read/1e9, r.words())
	}
	return l
}

// join checks what has to fit and computes the sets. The error is a *JointError.
func (j *Joint) join() error {
	var base []int
	var onRequest []int
	for i, m := range j.Members {
		if m.OnRequest {
			onRequest = append(onRequest, i)
		} else {
			base = append(base, i)
		}
	}
	if err := j.check(base); err != nil {
		return err
	}
	for _, i := range onRequest {
		if err := j.check(append(slices.Clone(base), i)); err != nil {
			return err
		}
	}
	if len(onRequest) > 0 && len(onRequest) <= MostListed {
		j.Sets = j.maximal(base, onRequest)
	}
	return nil
}

// Fits reports whether the models of these members, by index, can be in memory at once while the
// others are not.
func (j *Joint) Fits(loaded []int) bool {
	for k, p := range j.places {
		if p.total > 0 && j.ledger(k, loaded).Total() > p.total {
			return false
		}
	}
	return true
}

// check is Fits with a *JointError.
func (j *Joint) check(loaded []int) error {
	for k, p := range j.places {
		if l := j.ledger(k, loaded); p.total > 0 && l.Total() > p.total {
			return j.refuse(k, loaded, l)
		}
	}
	return nil
}

// maximal returns the largest sets of the given members that fit beside base.
func (j *Joint) maximal(base, of []int) [][]int {
	var fit []uint
	for set := uint(1)<<len(of) - 1; set > 0; set-- { // a set comes before its subsets
		if slices.ContainsFunc(fit, func(larger uint) bool { return larger&set == set }) {
			continue
		}
		if j.Fits(append(slices.Clone(base), pick(of, set)...)) {
			fit = append(fit, set)
		}
	}
	var out [][]int
	for _, set := range fit {
		out = append(out, pick(of, set))
	}
	slices.SortFunc(out, slices.Compare)
	return out
}

// pick returns the elements whose bit is set.
func pick(of []int, set uint) (out []int) {
	for i, m := range of {
		if set&(1<<i) != 0 {
			out = append(out, m)
		}
	}
	return out
}

// ledger returns the ledger of a place while these members' models are in memory.
func (j *Joint) ledger(place int, loaded []int) Ledger {
	out := slices.Clone(j.places[place].shared)
	for i, m := range j.Members {
		lines := m.takes[place].unloaded
		if slices.Contains(loaded, i) {
			lines = m.takes[place].loaded
		}
		for _, it := range lines {
			it.Name = m.Profile + ": " + it.Name
			out = append(out, it)
		}
	}
	return out
}

// everything returns the indices of all members.
func (j *Joint) everything() (all []int) {
	for i := range j.Members {
		all = append(all, i)
	}
	return all
}

// HeapTogether returns the limit of the Go heap of a process whose servers have these limits each,
// for bodies of at most largest bytes at the listener.
func HeapTogether(limits []int64, largest int64) int64 {
	n := add(heapBase, frontBytes(largest))
	for _, l := range limits {
		n = add(n, max(0, l-heapBase))
	}
	return n
}

// UnloadedHeap returns the limit of the Go heap of a server whose model is not in memory.
func (p *Plan) UnloadedHeap() int64 {
	return add(heapBase+unloadedHeap, mul(heapPerWord, int64(p.Model.Vocab)))
}

// CheckFree compares the most that is taken at once with what was available when the plan was made.
// It fails like Plan.CheckFree.
func (j *Joint) CheckFree() error {
	for k := range j.places {
		var free, need, limit int64
		for _, m := range j.Members {
			if m.w.onGPU() == (k == 1) {
				free = m.Plan.Facts.FreeBytes
			}
			if k == 0 {
				limit = max(limit, m.w.in.Host.Total)
			}
		}
		var mapped int64
		for _, it := range j.ledger(k, j.largest(k)) {
			if it.Basis.counts() && it.Basis != Held {
				need = add(need, it.Bytes)
			}
			if strings.HasSuffix(it.Name, ": "+mappedItem) {
				mapped = add(mapped, it.Bytes)
			}
		}
		if err := checkHost(need-mapped, limit); err != nil {
			return err
		}
		if free > 0 && need > free {
			return &NotFreeError{need, free}
		}
	}
	return nil
}

// list joins the names of members.
func (j *Joint) list(members []int, with string) string {
	var out []string
	for _, i := range members {
		out = append(out, j.Members[i].Profile)
	}
	return strings.Join(out, with)
}
