package backendtest

import (
	"errors"
	"os"
	"testing"

	"vapp.dev/engine/backend"
	"vapp.dev/kernels"
)

// movePages: a sequence's pages are swapped out while its step may still run, and swapped in
// to other pages; the sequence continues with the same results.
func (s *subject) movePages(t *testing.T) {
	n := net{weights: kernels.F32, pages: kernels.F16, block: 16, rows: 80, seqs: 1, swap: true}
	r := n.rig(t, s, 3)
	pages := netPages(r, 3, upTo(r.pageCount()))
	ids := netSequences()[3]
	want := n.runs(r, [][]int32{ids}, pages[1:2], []int{40, 1})
	check(t, r.dev.Launch(r.exe, r.fill(0, []feed{{tokens: ids[:50], pages: pages[0]}})))
	slots := []int32{7, 2, 5, 0}
	var out, in []backend.PageMove
	for i, slot := range slots {
		out = append(out, backend.PageMove{Out: true, Page: pages[0][i], Slot: slot})
		in = append(in, backend.PageMove{Page: pages[2][i], Slot: slot})
	}
	check(t, r.dev.Move(out))
	check(t, r.dev.Launch(r.exe, r.fill(1, []feed{{tokens: netSequences()[2], pages: pages[0]}}))) // another sequence uses the old pages
	check(t, r.dev.Move(in))
	check(t, r.dev.Wait(0))
	check(t, r.dev.Wait(1))
	r.run(feed{tokens: ids[50:], at: 50, pages: pages[2], sampled: all(10)})
	s.sameLogits(t, &n, "after Move", [][][]float32{split(r.floats(n.logits, 10), netVocab)}, [][][]float32{want[0][50:]})
	for _, bad := range []backend.PageMove{
		{Class: 1}, {Class: -1}, {Page: -1}, {Page: int32(r.pageCount())}, {Slot: -1, Out: true}, {Slot: 1 << 30, Out: true},
	} {
		var step *backend.StepError
		if err := r.dev.Move([]backend.PageMove{bad}); !errors.As(err, &step) {
			t.Errorf("Move %+v: %v, want a *StepError", bad, err)
		}
	}
	without := net{weights: kernels.F32, pages: kernels.F16, block: 16, rows: 8, seqs: 1}
	if bare := without.rig(t, s, 1); bare.dev.Move(out[:1]) == nil {
		t.Error("Move without swap space: no error")
	}
}

// swapDir returns a directory for a large file: the test's own, or if that is in memory the
// package's, where the unnamed file leaves no trace.
func (s *subject) swapDir(t testing.TB, r backend.Reservation) string {
	dir := t.TempDir()
	settings := s.settings
	settings.SwapDir = dir
	d, err := s.opener.Open(s.facts, settings, r)
	var no *backend.SwapError
	if errors.As(err, &no) {
		dir, err = os.Getwd()
		check(t, err)
		return dir
	}
	check(t, err)
	check(t, d.Close())
	return dir
}
