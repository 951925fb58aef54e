//go:build linux && cgo && cuda

package cuda

import (
	"unsafe"

	"vapp.dev/engine/backend"
	"vapp.dev/engine/backend/cuda/driver"
)

// uploads collects the ranges of a step's inputs to copy to the device, and merges ranges
// that are near each other.
type uploads struct {
	d      *device
	at, to int64 // of the current range
	err    error
}

// minGap is the gap in bytes from which two ranges are copied separately.
const minGap = 32 << 10

// upload copies the inputs that the step's launches read.
func (d *device) upload(x *executable, c *captured, b backend.Binding) error {
	p, s, u := x.p, d.steps[b.Set], uploads{d: d}
	send(&u, s.Tokens, b.Tokens)
	send(&u, s.Positions, b.Tokens)
	send(&u, s.Seq, b.Tokens)
	send(&u, s.First, b.Seqs+1)
	for _, l := range x.workOf(c, b) {
		list := s.Work[l.at : l.at+l.most]
		send(&u, list, 4+4*int(list[0]))
	}
	last := lastPosition(s, b)
	for i, c := range p.Classes {
		u.tables(s.Pages[i], b.Seqs, c.MaxPages, d.used(c, last))
	}
	send(&u, s.Rows, b.Samples)
	if len(s.Sampling) > 0 {
		u.sampling(s, b.Samples)
	}
	u.flush() // outputs follow: kernels write the twin of Sampled, and the step before may still read it
	send(&u, s.MRopePositions, b.Tokens*p.Axes)
	if p.AdapterSlots > 0 {
		send(&u, s.Adapters, b.Tokens)
	}
	if p.TakesItems() {
		send(&u, s.Encoded, b.Tokens)
		send(&u, s.ItemEnd, b.Tokens)
		send(&u, s.EncodedNext, b.Tokens)
	}
	u.flush()
	return u.err
}

// used returns how many entries of a page table kernels read in a step whose longest sequence
// ends at position last. If a table begins with the sequence's first page, these are the
// entries up to its last page and the pages of lookahead positions; else all.
func (d *device) used(c backend.KVClass, last int32) int {
	if c.BlockSize <= 0 || c.Window > 0 || c.State != nil || c.Snapshot {
		return c.MaxPages
	}
	ahead := max(d.r.Step.Drafts, d.r.Step.Verify) + 1
	return min(c.MaxPages, (int(last)+ahead)/c.BlockSize+1)
}

// tables adds the used entries of page tables, or whole tables if the rest is small.
func (u *uploads) tables(s []int32, seqs, width, used int) {
	if (width-used)*seqs*4 < minGap {
		send(u, s, seqs*width)
		return
	}
	u.flush()
	if u.err != nil {
		return
	}
	at := offset(u.d.host, s)
	u.err = u.d.in.RowsToDevice(u.d.arenas[backend.StepIO]+driver.Address(at), unsafe.Pointer(&u.d.host[at]), int64(used)*4, int64(width)*4, int64(seqs))
}

// sampling adds the sampled rows and the inputs that they use.
func (u *uploads) sampling(s *backend.Step, n int) {
	send(u, s.Sampling, n)
	var grammar, allowed, bias int
	for i := range s.Sampling[:n] {
		row := &s.Sampling[i]
		if row.Flags&backend.UseGrammar != 0 {
			grammar = i + 1
		}
		if row.Flags&backend.UseAllowed != 0 {
			allowed = i + 1
		}
		if row.NumBias > 0 {
			bias = i + 1
		}
	}
	send(u, s.Grammar, grammar*s.Words)
	send(u, s.Allowed, allowed*s.Words)
	send(u, s.Bias, bias*(len(s.Bias)/max(1, len(s.Sampling))))
}

// send adds the first n elements of a buffer.
func send[T any](u *uploads, s []T, n int) {
	if n == 0 || len(s) == 0 {
		return
	}
	var one T
	from := offset(u.d.host, s)
	to := from + int64(n)*int64(unsafe.Sizeof(one))
	if u.to == 0 || from < u.to || from-u.to > minGap {
		u.flush()
		u.at = from
	}
	u.to = to
}

// flush copies the current range.
func (u *uploads) flush() {
	if u.to > u.at && u.err == nil {
		u.err = u.d.in.ToDevice(u.d.arenas[backend.StepIO]+driver.Address(u.at), unsafe.Pointer(&u.d.host[u.at]), u.to-u.at)
	}
	u.at, u.to = 0, 0
}
