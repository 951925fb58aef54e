package plan

import (
	"fmt"

	"vapp.dev/engine/backend"
)

// Line compares a ledger line with what was really taken, in bytes.
type Line struct {
	Item    string
	Planned int64
	Actual  int64
}

// Difference is Actual less Planned; 0 is the promise for arenas.
func (l Line) Difference() int64 { return l.Actual - l.Planned }

// String is the line that is logged at start.
func (l Line) String() string {
	d := l.Difference()
	s := "0"
	if d != 0 {
		s = sign(d) + Group(abs(d))
	}
	return fmt.Sprintf("memory %s: plan %s bytes (%s), actual %s, difference %s", l.Item, Group(l.Planned), Size(l.Planned), Group(l.Actual), s)
}

// Compare holds the ledger's arenas against what a Device took of each; one that is
// empty in both is left out.
func (l Ledger) Compare(usage [backend.NumArenas]int64) []Line {
	var out []Line
	for a := backend.Arena(0); a < backend.NumArenas; a++ {
		if n := l.Bytes(a.String()); n != 0 || usage[a] != 0 {
			out = append(out, Line{a.String(), n, usage[a]})
		}
	}
	return out
}

// NotFreeError says that the plan fits the machine but not what is available
// on it now.
type NotFreeError struct {
	Need, Free int64 // bytes
}

func (e *NotFreeError) Error() string {
	return fmt.Sprintf("memory: the plan takes %s but only %s is available now, %s missing; stop what uses it, or lower memory.utilization or memory.kvCache",
		Size(e.Need), Size(e.Free), Size(e.Need-e.Free))
}

// CheckFree compares the plan with the memory available now, in bytes: what the
// profile reserves for others does not count, others have it already. 0 is
// unknown and passes. The error is a *NotFreeError.
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
	return nil
}
