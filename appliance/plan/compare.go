package plan

import (
	"fmt"

	"vapp.dev/engine/backend"
)

// Line compares a ledger line with the memory that was really allocated, in bytes.
type Line struct {
	Item    string
	Planned int64
	Actual  int64
}

// Difference returns Actual − Planned. It is 0 for arenas.
func (l Line) Difference() int64 { return l.Actual - l.Planned }

// String returns the line that is logged at start.
func (l Line) String() string {
	d := l.Difference()
	s := "0"
	if d != 0 {
		s = sign(d) + Group(abs(d))
	}
	return fmt.Sprintf("memory %s: plan %s bytes (%s), actual %s, difference %s", l.Item, Group(l.Planned), Size(l.Planned), Group(l.Actual), s)
}

// Compare compares the ledger's arenas with what a Device allocated for each. It leaves out
// arenas that are empty in both.
func (l Ledger) Compare(usage [backend.NumArenas]int64) []Line {
	var out []Line
	for a := backend.Arena(0); a < backend.NumArenas; a++ {
		if n := l.Bytes(a.String()); n != 0 || usage[a] != 0 {
			out = append(out, Line{a.String(), n, usage[a]})
		}
	}
	return out
}

// NotFreeError reports that the plan fits the machine's memory but not what is available now.
type NotFreeError struct {
	Need, Free int64 // bytes
}

func (e *NotFreeError) Error() string {
	return fmt.Sprintf("memory: the plan takes %s but only %s is available now, %s missing; stop what uses it, or lower memory.utilization or memory.kvCache",
		Size(e.Need), Size(e.Free), Size(e.Need-e.Free))
}

// HostLimitError reports that a plan on a GPU takes more of the machine's memory than the machine has, or than
// a control group allows this process.
type HostLimitError struct {
	Need, Limit int64 // bytes
}

func (e *HostLimitError) Error() string {
	return fmt.Sprintf("memory: does not fit: beside the GPU's memory the plan takes %s of the machine's, and the limit is %s, %d bytes missing; raise the limit (in a pod resources.limits.memory), or lower memory.swapSpace",
		Size(e.Need), Size(e.Limit), e.Need-e.Limit)
}

// HostNeed returns the memory of the machine that a plan on a GPU needs, in bytes: the Host lines except mapped files, which
// are in the kernel's cache and can be dropped. For other plans it is 0.
func (p *Plan) HostNeed() int64 {
	var need int64
	for _, i := range p.Ledger {
		if i.Basis == Host && i.Name != mappedItem {
			need = add(need, i.Bytes)
		}
	}
	return need
}

// checkHost compares the memory of the machine, in bytes, with what a plan on a GPU needs of it. limit = 0 is unknown and passes.
func checkHost(need, limit int64) error {
	if limit > 0 && need > limit {
		return &HostLimitError{need, limit}
	}
	return nil
}

// CheckFree compares the plan with the memory available now, in bytes. memory.reserve does not
// count, since other processes use it already. free = 0 means unknown and passes. The error is
// a *NotFreeError, or a *HostLimitError for the machine's memory beside a GPU.
func (p *Plan) CheckFree(free int64) error {
	var need int64
	for _, i := range p.Ledger {
		if i.Basis.counts() && i.Basis != Held {
			need = add(need, i.Bytes)
		}
	}
	if free > 0 && need > free {
		return &NotFreeError{need, free}
	}
	return checkHost(p.HostNeed(), p.resolved.in.Host.Total)
}
