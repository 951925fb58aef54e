package plan

import (
	"fmt"

	"vapp.dev/engine/backend"
)

// What a process reserves beside its ledger. The address space was measured at start and under
// load on x86-64 Linux: 2.1 GiB with 12 threads, most of it taken before a model is read.
const (
	planningBytes = 512 << 20 // reading and planning a model: heap, threads, and no weights
	otherThreads  = 16        // of Go and the text library, beside one a core and those that compute
	mallocHeap    = 64 << 20  // address space that glibc reserves for a thread that allocates
)

// ulimits are the shell's options for limits.
var ulimits = map[string]string{backend.AddressSpace: "ulimit -v", backend.DataSize: "ulimit -d"}

// LimitError says that the system allows this process less memory of its own than it needs.
type LimitError struct {
	backend.ProcessLimit
	Need    int64  // at least
	Serving bool   // to serve the plan; else to make it
	Detail  string // what Need consists of
}

func (e *LimitError) Error() string {
	what, remedy := "planning", ""
	if e.Serving {
		what, remedy = "the plan", ", or lower memory.kvCache or memory.utilization"
	}
	option := ulimits[e.Name]
	return fmt.Sprintf("memory: this process is limited to %s of %s (%s %d), and %s needs %s (%s %d): %s; raise the limit or set it to unlimited%s",
		Size(e.Limit), e.Name, option, e.Limit>>10, what, Size(e.Need), option, (e.Need+1023)>>10, e.Detail, remedy)
}

// CheckLimits compares the limits on this process with what reading a model and planning it
// takes. The error is a *LimitError.
func CheckLimits(limits []backend.ProcessLimit) error {
	for _, l := range limits {
		if need := add(l.Used, planningBytes); need > l.Limit {
			return &LimitError{l, need, false, fmt.Sprintf("%s taken already, %s for the planner", Size(l.Used), Size(planningBytes))}
		}
	}
	return nil
}

// CheckLimits compares the limits on this process, as its Facts have them, with what serving the
// plan takes: what was taken when they were read, the ledger, files of the model while they are
// mapped, and stacks and allocators of threads. The error is a *LimitError.
func (p *Plan) CheckLimits() error {
	threads := int64(max(p.Options.Backend.Threads, p.Facts.Cores) + p.Facts.Cores + otherThreads)
	for _, l := range p.Facts.Limits {
		ledger, each := int64(0), l.Stack
		for _, i := range p.Ledger {
			if i.Basis.counts() && i.Basis != Held || i.Name == mappedItem && l.Name == backend.AddressSpace {
				ledger = add(ledger, i.Bytes)
			}
		}
		if l.Name == backend.AddressSpace {
			each += mallocHeap
			ledger = add(ledger, p.Facts.HugeBytes) // an arena is mapped with the room to align it
		}
		need := add(add(l.Used, ledger), threads*each)
		if need > l.Limit {
			return &LimitError{l, need, true, fmt.Sprintf("%s taken already, %s of the ledger, %s for %d threads", Size(l.Used), Size(ledger), Size(threads*each), threads)}
		}
	}
	return nil
}
