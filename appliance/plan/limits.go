package plan

import (
	"fmt"

	"vapp.dev/engine/backend"
)

// Memory that a process reserves in addition to its ledger. The address space was measured at
// start and under load on x86-64 Linux: 2.1 GiB with 12 threads, most of it reserved before a
// model is read.
const (
	planningBytes = 512 << 20 // reading and planning a model, without weights
	otherThreads  = 16        // threads of Go and the text library, in addition to one for each core and the compute threads
	mallocHeap    = 64 << 20  // address space that glibc reserves for each thread that allocates
)

// ulimits are the shell's commands for limits.
var ulimits = map[string]string{backend.AddressSpace: "ulimit -v", backend.DataSize: "ulimit -d"}

// LimitError reports that a process limit is below the memory that the process needs.
type LimitError struct {
	backend.ProcessLimit
	Need    int64  // at least
	Serving bool   // Need is for serving the plan, otherwise for planning
	Detail  string // the parts of Need
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

// CheckLimits compares the process limits with the memory that reading and planning a model
// takes. The error is a *LimitError.
func CheckLimits(limits []backend.ProcessLimit) error {
	for _, l := range limits {
		if need := add(l.Used, planningBytes); need > l.Limit {
			return &LimitError{l, need, false, fmt.Sprintf("%s taken already, %s for the planner", Size(l.Used), Size(planningBytes))}
		}
	}
	return nil
}

// threads returns how many threads the process has at most, as far as none of them blocks in the system.
func (p *Plan) threads() int64 {
	return int64(max(p.Options.Backend.Threads, p.Facts.Cores) + p.Facts.Cores + otherThreads)
}

// ProcessThreads returns the threads that the process of the plan may have.
func (p *Plan) ProcessThreads() int64 {
	if p.resolved.onGPU() {
		return max(hostThreads, p.threads())
	}
	return p.threads()
}

// ProcessBytes returns the memory of the machine that a process with this ledger, that of the plan or of one of
// its ranks, may take once the model is loaded: with a GPU the lines of basis Host, else those that count,
// except what is held for others.
func (p *Plan) ProcessBytes(l Ledger) int64 {
	if p.resolved.onGPU() {
		return l.HostTotal()
	}
	var n int64
	for _, i := range l {
		if i.Basis.counts() && i.Basis != Held {
			n = add(n, i.Bytes)
		}
	}
	return n
}

// CheckLimits compares the process limits in Facts with the memory that serving the plan takes:
// the memory used when they were read, the ledger, the model's files while they are mapped, and
// the stacks and allocators of threads. The error is a *LimitError.
func (p *Plan) CheckLimits() error { return p.checkLimits(0, 0) }

// checkLimits is CheckLimits for an engine that takes the place of another one, which frees bytes of the memory used,
// and whose weights of that many shared bytes stay.
func (p *Plan) checkLimits(freed, shared int64) error {
	threads := p.threads()
	for _, l := range p.Facts.Limits {
		l.Used = max(0, l.Used-freed)
		ledger, each := -shared, l.Stack
		for _, i := range p.Ledger {
			if i.Basis.counts() && i.Basis != Held || i.Name == mappedItem && l.Name == backend.AddressSpace && shared == 0 {
				ledger = add(ledger, i.Bytes)
			}
		}
		if l.Name == backend.AddressSpace {
			each += mallocHeap
			ledger = add(ledger, p.Facts.HugeBytes) // an arena is mapped with extra space for its alignment
		}
		need := add(add(l.Used, ledger), threads*each)
		if need > l.Limit {
			return &LimitError{l, need, true, fmt.Sprintf("%s taken already, %s of the ledger, %s for %d threads", Size(l.Used), Size(ledger), Size(threads*each), threads)}
		}
	}
	return nil
}
