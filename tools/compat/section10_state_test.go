package compat

import (
	"fmt"
	"testing"
)

// stateRows returns the extra rows of models with states: the raised block size, padding, and the
// two states of the pull request.
func (s seed) stateRows(t testing.TB) []row {
	if s.Logged["blockSize"] == "" {
		return nil
	}
	lo, hi := s.interval(t)
	o := s.withBytes(t, lo)
	c := o.cache
	out := []row{
		{figure: "attention block size, tokens", logged: s.Logged["blockSize"], computed: fmt.Sprint(c.bumped), difference: "0", status: "exact", note: fmt.Sprintf("a state is %s B", groupDigits(c.state))},
		{figure: "mamba page padding", logged: s.Logged["pagePadding"], computed: fmt.Sprintf("%.2f%%", c.padded), difference: "0", status: "exact"},
		{figure: "padding layers (waste)", logged: s.Logged["padding"], computed: fmt.Sprintf("%d, %.2f%%", c.padding[0].layers, 100*float64(c.padding[0].layers)/float64(c.padding[0].of)), difference: "0", status: "exact"},
	}
	for rel, key := range map[Release]string{V017PullA: "pullA", V017PullB: "pullB"} {
		s.Release = rel
		first := s.withBytes(t, lo)
		want := fmt.Sprintf("%s %.2fx", groupDigits(first.tokens()), first.concurrency(first.length))
		for at := lo; at <= hi; at += (hi - lo) / 97 {
			p := s.withBytes(t, at)
			if got := fmt.Sprintf("%s %.2fx", groupDigits(p.tokens()), p.concurrency(p.length)); got != want {
				t.Errorf("%v: %s at %d bytes, %s at %d", rel, got, at, want, lo)
			}
		}
		out = append(out, row{figure: fmt.Sprintf("%v: GPU KV cache size, maximum concurrency", rel), logged: s.Logged[key], computed: want, difference: "0", status: "exact",
			note: fmt.Sprintf("reconstructed: %d attention blocks, state pool for %d request(s), over the whole interval", first.pool.attention, first.pool.requests)})
	}
	if out[len(out)-1].figure < out[len(out)-2].figure {
		n := len(out)
		out[n-1], out[n-2] = out[n-2], out[n-1]
	}
	s.Release = V017PullB
	b := s.withBytes(t, lo)
	p := b.graphs
	out = append(out, row{figure: "graphs capped by the state blocks: largest, PIECEWISE, FULL", logged: s.Logged["capped"], computed: fmt.Sprintf("%d, %d, %d", most(p.piecewise), len(p.piecewise), len(p.full)), difference: "0", status: "exact", note: b.capNote()},
		s.graphMemory(b, "CUDA graph pool actual after the cap, GiB", "cappedMemory"))
	return s.named(out)
}

// TestSection10 computes the rows of memory-planning section 10 and checks each by its status:
// exact rows equal the text of the log, fitted rows are within the residual in the report.
func TestSection10(t *testing.T) {
	exact := 0
	for _, s := range seeds(t) {
		for _, r := range s.rows(t) {
			r.check(t)
			t.Logf("%-34s %-55s %-22s %-42s %-12s %s", r.run, r.figure, r.logged, r.computed, r.difference, r.status)
			if r.status == "exact" {
				exact++
			}
		}
	}
	if exact != 46 {
		t.Errorf("%d exact rows, want 46", exact)
	}
}

// TestNewerEngine checks the same blocks under the formulas of mid 2026.
func TestNewerEngine(t *testing.T) {
	for _, s := range seeds(t) {
		want := s.Figured["newer"]
		if want == "" {
			continue
		}
		lo, _ := s.interval(t)
		need, x, tokens := s.withBytes(t, lo).newer()
		if got := fmt.Sprintf("%d %.2f %s", need, x, groupDigits(tokens)); got != want {
			t.Errorf("%s: %s, want %s", s.Run, got, want)
		}
	}
}
