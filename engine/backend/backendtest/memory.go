package backendtest

import (
	"errors"
	"runtime"
	"testing"
	"unsafe"

	"vapp.dev/engine/backend"
	"vapp.dev/kernels"
)

// launchAllocs is how many Go allocations a Launch and its Wait may make.
const launchAllocs = 4

// memory tests that a device uses the reserved memory, at fixed addresses.
func (s *subject) memory(t *testing.T) {
	n := net{weights: kernels.Q8_0, pages: kernels.F16, block: 16, rows: 80, seqs: 4, sampled: true, tops: 2, swap: true}
	r := n.rig(t, s, 4)
	if got := r.dev.Usage(); got != r.res.Arenas {
		t.Errorf("arenas take %v bytes, reserved were %v", got, r.res.Arenas)
	}
	for a, size := range r.res.Arenas {
		if s.layout.Round(size) != size || s.layout.Round(size+1) <= size {
			t.Errorf("Round(%d) = %d, Round(%d) = %d", size, s.layout.Round(size), size+1, s.layout.Round(size+1))
		}
		if size == 0 && backend.Arena(a) < backend.Item { // those of an encoder have a test of their own
			t.Errorf("the %v arena is empty: this test would prove nothing", backend.Arena(a))
		}
	}
	before := addresses(r)
	pages := netPages(r, 4, upTo(r.pageCount()))
	seqs := netSequences()
	row := backend.SampleRow{Temperature: 1, TopP: 0.9, TopK: 40, Repetition: 1.1, Flags: backend.WantLogprob, NumTop: 2}
	step := func() {
		for set := range 2 {
			b := r.fill(set, []feed{
				{tokens: seqs[3][:40], pages: pages[0], sampled: []int{39}, row: row},
				{tokens: seqs[2][:1], at: 3, pages: pages[1], sampled: []int{0}, row: row},
			})
			r.launch(b)
		}
	}
	step()
	// fill allocates slices itself; its allocations are counted separately.
	filled := testing.AllocsPerRun(5, func() {
		for set := range 2 {
			r.fill(set, []feed{
				{tokens: seqs[3][:40], pages: pages[0], sampled: []int{39}, row: row},
				{tokens: seqs[2][:1], at: 3, pages: pages[1], sampled: []int{0}, row: row},
			})
		}
	})
	if got := testing.AllocsPerRun(5, step) - filled; got > 2*launchAllocs {
		t.Errorf("two launches make %.0f Go allocations, at most %d", got, 2*launchAllocs)
	}
	var m0, m1 runtime.MemStats
	runtime.ReadMemStats(&m0)
	for range 10 {
		step()
	}
	runtime.ReadMemStats(&m1)
	if grown := int64(m1.TotalAlloc) - int64(m0.TotalAlloc); grown > 20*4096 {
		t.Errorf("20 launches allocate %d bytes of Go heap, at most %d", grown, 20*4096)
	}
	if after := addresses(r); after != before {
		t.Errorf("step buffers moved: %v, then %v", before, after)
	}
	if got := r.dev.Usage(); got != r.res.Arenas {
		t.Errorf("after launches the arenas take %v bytes, reserved were %v", got, r.res.Arenas)
	}
	s.shortReservation(t, r.res)
	s.closed(t)
}

// closed: Close may be called twice, and later calls fail.
func (s *subject) closed(t *testing.T) {
	n := net{weights: kernels.F32, pages: kernels.F32, block: 16, rows: 8, seqs: 1}
	r := n.rig(t, s, 1)
	b := r.fill(0, []feed{{tokens: []int32{1}, pages: upTo(6)}})
	check(t, r.dev.Launch(r.exe, b)) // Close waits for it
	for range 2 {
		if err := r.dev.Close(); err != nil {
			t.Errorf("Close: %v", err)
		}
	}
	if r.dev.Launch(r.exe, b) == nil || r.dev.Pack(0, failing{}) == nil {
		t.Error("Launch or Pack after Close: no error")
	}
}

// addresses returns the addresses of both sets' first and last buffers.
func addresses(r *rig) (at [2][4]uintptr) {
	for set := range at {
		s := r.dev.Step(set)
		at[set] = [4]uintptr{
			uintptr(unsafe.Pointer(&s.Tokens[0])), uintptr(unsafe.Pointer(&s.Sampling[0])),
			uintptr(unsafe.Pointer(&s.Sampled[0])), uintptr(unsafe.Pointer(&s.TopProbs[0])),
		}
	}
	return at
}

// shortReservation: Open rejects an arena that is too small.
func (s *subject) shortReservation(t *testing.T, r backend.Reservation) {
	for _, a := range []backend.Arena{backend.Weights, backend.Scratch, backend.Workspace, backend.StepIO} {
		bad := r
		bad.Arenas[a] = 0
		d, err := s.opener.Open(s.facts, s.settings, bad)
		if err == nil {
			d.Close()
			t.Errorf("Open with no bytes for the %v arena: no error", a)
		} else if errors.Is(err, backend.ErrUnsupported) {
			t.Errorf("Open with no bytes for the %v arena: %v; that is no missing feature", a, err)
		}
	}
}
