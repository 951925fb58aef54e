package backendtest

import (
	"math"
	"slices"
	"testing"

	"vapp.dev/engine/backend"
	"vapp.dev/kernels"
)

// tokens tests data that passes from one step to the next.
func (s *subject) tokens(t *testing.T) {
	s.run(t, "resolve", s.resolve)
	s.run(t, "overlap", s.overlap)
	s.run(t, "move pages", s.movePages)
}

// resolve: ids pass unchanged, −1−r is row r of the other set, and a row without token gives
// 0.
func (s *subject) resolve(t *testing.T) {
	const vocab = 40
	m, x := &tensors{}, make([]float32, vocab*vocab)
	x[1*vocab+17], x[2*vocab+39], x[3*vocab] = 1, 2, float32(math.NaN())
	r := s.rig(t, samplePlan(m, m.table("x", x, vocab), vocab, 8))
	r.launch(r.fill(0, []feed{{tokens: []int32{1, 2, 3}, sampled: all(3), pages: []int32{0}}}))
	if got := r.dev.Step(0).Sampled[:3]; !slices.Equal(got, []int32{17, 39, -1}) {
		t.Fatalf("sampled %v, want 17, 39, −1", got)
	}
	r.launch(r.fill(1, []feed{{tokens: []int32{-2, 1, -1, -3, 0}, pages: []int32{0}}}))
	if got := r.ints(0, 5); !slices.Equal(got, []int32{39, 1, 17, 0, 0}) {
		t.Errorf("−2, 1, −1, −3, 0 resolve to %v, want 39, 1, 17, 0, 0", got)
	}
}

// overlap: launching step n+1 before the tokens of step n are known gives the same tokens as
// waiting for them.
func (s *subject) overlap(t *testing.T) {
	const steps = 24
	n := net{weights: kernels.F32, pages: kernels.F32, block: 16, rows: 32, seqs: 3, sampled: true}
	r := n.rig(t, s, 3)
	pages := netPages(r, 3, upTo(r.pageCount()))
	prompt := netSequences()[2]
	row := backend.SampleRow{Temperature: 1, Repetition: 1.3, TopP: 0.95, Seed: 7}
	feeds := func(step int, ids func(seq int) int32) []feed {
		out := make([]feed, 3)
		for i := range out {
			out[i] = feed{tokens: prompt[i : i+8], at: 0, pages: pages[i], sampled: []int{7}, row: row}
			if step > 0 {
				out[i] = feed{tokens: []int32{ids(i)}, at: 7 + step, pages: pages[i], sampled: []int{0}, row: row}
			}
			out[i].row.Position, out[i].row.HistoryLen, out[i].row.PromptLen = int32(8+step), int32(8+step), 8
		}
		return out
	}
	var plain [][]int32
	for step := range steps {
		r.launch(r.fill(0, feeds(step, func(i int) int32 { return plain[step-1][i] })))
		plain = append(plain, slices.Clone(r.dev.Step(0).Sampled[:3]))
	}
	for step := range steps + 1 {
		if step < steps {
			check(t, r.dev.Launch(r.exe, r.fill(step%2, feeds(step, func(i int) int32 { return int32(-1 - i) }))))
		}
		if step == 0 {
			continue
		}
		check(t, r.dev.Wait((step-1)%2))
		if got := r.dev.Step((step - 1) % 2).Sampled[:3]; !slices.Equal(got, plain[step-1]) {
			t.Fatalf("step %d sampled %v, alone %v", step-1, got, plain[step-1])
		}
	}
}

func split(x []float32, n int) [][]float32 {
	var out [][]float32
	for i := 0; i < len(x); i += n {
		out = append(out, x[i:i+n])
	}
	return out
}
