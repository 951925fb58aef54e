package plan

import (
	"fmt"
	"slices"
	"strings"
)

// Verdict is a plan in three lines: whether it fits, what it carries, and the one thing to know.
type Verdict struct {
	Fits bool `json:"fits"`
	// Left is the memory of the device that the ledger leaves, in bytes. It is negative if memory
	// is missing, and 0 if the memory of the device is unknown.
	Left    int64  `json:"left_bytes"`
	Memory  string `json:"memory"`
	Carries string `json:"carries"`
	Note    string `json:"note"`
	Rule    string `json:"rule"` // name of the rule that chose Note
}

// Verdict returns the verdict of a plan that fits.
func (p *Plan) Verdict() Verdict {
	v := Verdict{Fits: true, Memory: p.memoryLine()}
	if len(p.Capacity.Lengths) == 0 { // a plan whose capacity was not computed
		return v
	}
	v.Carries = p.carriesLine()
	if p.Facts.TotalBytes > 0 {
		v.Left = p.Facts.TotalBytes - p.Ledger.Total()
	}
	for _, r := range rules {
		if note := r.note(p); note != "" {
			v.Rule, v.Note = r.name, note
			break
		}
	}
	return v
}

// write prints the three lines.
func (v Verdict) write(t *text, known bool) {
	label := "fits"
	if !known {
		label = "takes"
	}
	t.pair(label, v.Memory)
	t.pair("carries", v.Carries)
	t.pair("note", v.Note)
}

// memoryLine returns what the server takes of which device, and what is left.
func (p *Plan) memoryLine() string {
	total, used := p.Facts.TotalBytes, p.Ledger.Total()
	on := p.Facts.Device
	switch {
	case p.Ranks > 1 && hostRanks(p.resolved.in) > 1:
		on = fmt.Sprintf("the part of each of %d ranks, %d on %s", p.Ranks, hostRanks(p.resolved.in), on)
	case p.Ranks > 1:
		on = fmt.Sprintf("each of %d × %s", p.Ranks, on)
	case p.Facts.Measured && p.Facts.Cores > 0 && p.Facts.SMs == 0:
		on = fmt.Sprintf("this machine, %s with %s", on, numberOf(p.Facts.Cores, "core"))
	}
	if total <= 0 {
		return fmt.Sprintf("%s on %s, whose memory is unknown: nothing was compared", Size(used), on)
	}
	s := fmt.Sprintf("%s of %s on %s; %s left", Size(used), Size(total), on, Size(total-used))
	if p.Budget.Bytes > 0 && p.Budget.Bytes < total {
		s += fmt.Sprintf(" (utilization %g)", p.utilization)
	}
	return s
}

// carriesLine returns how many sequences run at once, of the longest length and of a shorter one.
func (p *Plan) carriesLine() string {
	c := p.Capacity
	last := c.Lengths[len(c.Lengths)-1]
	n, length := numberOfGroup(last.Running, "sequence"), Group(int64(last.Tokens))
	s := fmt.Sprintf("%s of %s tokens at once", n, length)
	short, ok := p.shorter()
	switch {
	case last.Admitted > last.Running:
		s = fmt.Sprintf("%s of up to %s tokens at once (maxNumSeqs)", n, length)
	case ok && short.Running > last.Running:
		s += fmt.Sprintf(", or %s of %s", Group(int64(short.Running)), Group(int64(short.Tokens)))
		if short.Admitted > short.Running {
			s += " (maxNumSeqs)"
		}
	}
	return s + fmt.Sprintf("; %s KV tokens", Group(c.Tokens))
}

// shorter returns the column for about an eighth of the longest length, or the shortest column.
func (p *Plan) shorter() (Fit, bool) {
	l := p.Capacity.Lengths
	for i := len(l) - 2; i >= 0; i-- {
		if i == 0 || l[i].Tokens <= l[len(l)-1].Tokens/8 {
			return l[i], true
		}
	}
	return Fit{}, false
}

func numberOfGroup(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return Group(int64(n)) + " " + noun + "s"
}

// rule is a sentence that may be the one thing to know about a plan. note returns "" if the rule
// does not apply.
type rule struct {
	name string
	note func(*Plan) string
}

// rules are in order of importance. The first that applies is the note; the last always does.
var rules = []rule{
	{"plan-only", notePlanOnly},
	{"weights-absent", noteWeights},
	{"memory-taken", noteTaken},
	{"process-limit", noteLimit},
	{"contract-close", noteContract},
	{"memory-close", noteClose},
	{"length-cut", noteCut},
	{"one-at-a-time", noteOne},
	{"lost", noteLost},
	{"carries-more", noteOffer},
	{"max-num-seqs", noteSeqs},
	{"other-device", noteDevice},
	{"nothing", noteNothing},
}

// Limits from which a rule applies.
const (
	closeContract = 1.1  // of the required concurrency
	closeMemory   = 0.04 // of the device left over
	muchLost      = 0.05 // of the KV cache
	muchMore      = 1.5  // times the sequences
)

func notePlanOnly(p *Plan) string {
	if len(p.PlanOnly) == 0 {
		return ""
	}
	s := "plan-only: vapp up refuses it: " + p.PlanOnly[0]
	if n := len(p.PlanOnly) - 1; n > 0 {
		s += fmt.Sprintf(" (and %s below)", numberOf(n, "reason"))
	}
	return s
}

// noteWeights applies on this machine: for another device the weights are expected there.
func noteWeights(p *Plan) string {
	if p.absent == "" || !p.Facts.Measured {
		return ""
	}
	return "cannot start yet: " + p.absent
}

func noteTaken(p *Plan) string {
	if p.Facts.TotalBytes <= 0 {
		return ""
	}
	if err := p.CheckFree(p.Facts.FreeBytes); err != nil {
		return "cannot start now: " + strings.TrimPrefix(err.Error(), "memory: ")
	}
	return ""
}

func noteLimit(p *Plan) string {
	if p.Account == nil || !p.Facts.Measured {
		return ""
	}
	if err := p.CheckLimits(); err != nil {
		return "cannot start here: " + strings.TrimPrefix(err.Error(), "memory: ")
	}
	return ""
}

func noteContract(p *Plan) string {
	i := slices.IndexFunc(p.contracts, func(c metContract) bool { return c.margin < closeContract })
	if i < 0 {
		return ""
	}
	c := p.contracts[i]
	return fmt.Sprintf("%s is met, but only just: %s are required, the KV cache holds %.2f times that", c.path, c.goal, c.margin)
}

// noteClose applies if little of a device is left while lines of the ledger are not exact.
func noteClose(p *Plan) string {
	total := p.Facts.TotalBytes
	left := total - p.Ledger.Total()
	if total <= 0 || float64(left) >= closeMemory*float64(total) {
		return ""
	}
	var bounds int64
	for _, i := range p.Ledger {
		if i.Basis == Bound || i.Basis == Fitted {
			bounds = add(bounds, i.Bytes)
		}
	}
	field := "memory.utilization"
	if p.utilization == 0 {
		field = "memory.kvCache"
	}
	return fmt.Sprintf("only %s of the device are left, and %s of the plan are bounds or estimates; lower %s if other programs use it", Size(left), Size(bounds), field)
}

// noteCut applies if maxModelLen "auto" is shorter than the model allows.
func noteCut(p *Plan) string {
	n, of := p.Options.MaxModelLen, p.Model.Longest
	if !p.autoLen || n >= of {
		return ""
	}
	return fmt.Sprintf("a request has at most %s tokens, of the model's %s: the longest that fits (maxModelLen \"auto\")", Group(int64(n)), Group(int64(of)))
}

func noteOne(p *Plan) string {
	last := p.Capacity.Lengths[len(p.Capacity.Lengths)-1]
	if last.Running != 1 || last.Admitted > 1 {
		return ""
	}
	return fmt.Sprintf("one request of %s tokens takes %.0f %% of the KV cache; a second of that length waits until it ends",
		Group(int64(last.Tokens)), 100/p.Capacity.Concurrency)
}

func noteLost(p *Plan) string {
	last := p.Capacity.Lengths[len(p.Capacity.Lengths)-1]
	if last.Loss() < muchLost {
		return ""
	}
	return fmt.Sprintf("%.0f %% of the KV cache is lost to pages and slabs at %s tokens (%.2fx, exact pools: %.2fx)",
		100*last.Loss(), Group(int64(last.Tokens)), last.Concurrency, last.Ideal)
}

func noteOffer(p *Plan) string {
	if p.offer == nil {
		return ""
	}
	s := fmt.Sprintf("%s would carry %s of %s tokens", p.offer.Change, numberOfGroup(p.offer.seqs, "sequence"), Group(int64(p.Options.MaxModelLen)))
	if p.offer.Cost != "" {
		s += "; " + p.offer.Cost
	}
	return s
}

func noteSeqs(p *Plan) string {
	short, ok := p.shorter()
	if !ok || float64(short.Admitted) < muchMore*float64(short.Running) {
		return ""
	}
	return fmt.Sprintf("scheduler.maxNumSeqs is the limit of short requests: %d run, the KV cache holds %s of %s tokens",
		p.Options.MaxNumSeqs, Group(int64(short.Admitted)), Group(int64(short.Tokens)))
}

func noteDevice(p *Plan) string {
	if p.Facts.Measured {
		return ""
	}
	return "not measured: vapp up plans again for the device that it finds"
}

func noteNothing(*Plan) string {
	return "nothing stands out; --why-not 16x32K shows what it would take to carry more"
}

// metContract is a requirement of the profile that the plan meets.
type metContract struct {
	path   string
	goal   goal
	margin float64 // sequences that fit for each one required
}

// offer is a change that was planned and carries many more sequences of the model length.
type offer struct {
	Change
	seqs int
}

// offers are the searches for an offer, the one with the lowest price first.
var offers = []func(resolved, *Plan) (Change, resolved, bool){largerCache, largerShare, smallerKV}

// findOffer returns the first change that carries at least muchMore times the sequences of the
// model length; nil if there is none.
func (w resolved) findOffer(p *Plan) *offer {
	w.options.MaxModelLen = p.Options.MaxModelLen
	for _, try := range offers {
		c, v, ok := try(w, p)
		if !ok {
			continue
		}
		s, err := v.solve()
		if err != nil {
			continue
		}
		n := p.Options.MaxModelLen
		seqs := min(maxAdmitted(s.account.Pool, s.account.Slabs(s.options.KVBytes), n, n), s.options.MaxNumSeqs)
		if now := p.Capacity.Lengths[len(p.Capacity.Lengths)-1].Running; float64(seqs) >= muchMore*float64(now) && seqs > now {
			return &offer{c, seqs}
		}
	}
	return nil
}

// usable is the share of a device's memory that offers take.
const usable = 0.9

// usableBytes returns the memory that offers take: a share of the device, and no more than is
// available now.
func (w resolved) usableBytes() int64 {
	n := int64(usable * float64(w.in.Facts.TotalBytes))
	if free := w.in.Facts.FreeBytes; free > 0 {
		n = min(n, free)
	}
	return n
}

// largerCache raises memory.kvCache to what the device holds, but not beyond what maxNumSeqs
// sequences of the model length take.
func largerCache(w resolved, p *Plan) (Change, resolved, bool) {
	const gib = 1 << 30
	old, total := w.kvCache, w.in.Facts.TotalBytes
	if old == 0 || total <= 0 {
		return Change{}, w, false
	}
	all := w
	all.kvCache, all.utilization = 0, float64(w.usableBytes())/float64(total)
	s, err := all.solve()
	if err != nil {
		return Change{}, w, false
	}
	g := goal{p.Options.MaxNumSeqs, p.Options.MaxModelLen}
	wanted := int64(w.slabsFor(p.Account, g)) * p.Capacity.SlabBytes
	w.kvCache = min(s.options.KVBytes/gib, (wanted+gib-1)/gib) * gib
	return Change{Path: "memory.kvCache", Old: size(old), New: size(w.kvCache)}, w, w.kvCache > old
}

// largerShare raises memory.utilization to usable.
func largerShare(w resolved, _ *Plan) (Change, resolved, bool) {
	old := w.utilization
	w.utilization = usable
	c := Change{Path: "memory.utilization", Old: fmt.Sprint(old), New: fmt.Sprint(usable)}
	return c, w, old > 0 && old < usable && w.budget().Bytes <= w.usableBytes()
}

// smallerKV returns the variant with the smallest format of keys and values, if the profile leaves
// the format open.
func smallerKV(w resolved, _ *Plan) (Change, resolved, bool) {
	if w.in.Profile.Memory.KVCacheDtype != "auto" {
		return Change{}, w, false
	}
	all := w.dtypes()
	if len(all) == 0 {
		return Change{}, w, false
	}
	v := all[len(all)-1]
	return v.Change, v.resolved, true
}
