package backendtest

import (
	"math"
	"testing"

	"vapp.dev/engine/backend"
)

// badRows: a row without a token has its Status set, and its neighbours are not affected.
func (s *subject) badRows(t *testing.T) {
	const vocab = 70
	inf := float32(math.Inf(1))
	fill := func(z float32) []float32 {
		row := make([]float32, vocab)
		for i := range row {
			row[i] = z
		}
		return row
	}
	with := func(at int, z float32) []float32 {
		row := fill(1)
		row[at] = z
		return row
	}
	rows := [][]float32{fill(0), with(3, float32(math.NaN())), with(69, inf), fill(-inf), with(69, -float32(math.NaN())), with(5, 2), fill(math.MaxFloat32), fill(-math.MaxFloat32)}
	m, x := &tensors{}, []float32(nil)
	for _, r := range rows {
		x = append(x, r...)
	}
	rig := s.rig(t, samplePlan(m, m.table("x", x, vocab), vocab, 16))
	for _, temperature := range []float32{0, 1} {
		one := make([]uint32, 3)
		one[2] = 1 << 5 // token 69
		list := []sampleCase{}
		for i := range rows {
			list = append(list, sampleCase{history: []int32{int32(i)}, row: backend.SampleRow{Temperature: temperature, TopP: 1, Repetition: 1}})
		}
		// Masks that forbid every token, one after the other; and one that leaves one token.
		nothing := sampleCase{history: []int32{5}, row: backend.SampleRow{Temperature: temperature, Flags: backend.UseGrammar, TopP: 1, Repetition: 1}, grammar: make([]uint32, 3)}
		left := nothing
		left.grammar = one
		both := left
		both.allowed, both.row.Flags = make([]uint32, 3), backend.UseGrammar|backend.UseAllowed
		rig.runCases(append(list, nothing, left, both))
		step := rig.dev.Step(0)
		for i, bad := range []bool{false, true, true, true, true, false, false, false, true, false, true} {
			if got := step.Status[i] == backend.RowNaN; got != bad || bad != (step.Sampled[i] == -1) {
				t.Errorf("temperature %g, row %d: status %d, token %d", temperature, i, step.Status[i], step.Sampled[i])
			}
		}
		if got := step.Sampled[9]; got != 69 {
			t.Errorf("temperature %g: a grammar that allows 69 gave %d", temperature, got)
		}
		if temperature == 0 && (step.Sampled[0] != 0 || step.Sampled[5] != 5) {
			t.Errorf("greedy: %d of equals, want 0; %d, want 5", step.Sampled[0], step.Sampled[5])
		}
	}
}

// distribution samples 4096 tokens with consecutive positions of one seed and compares their
// counts with the softmax by χ²: below 63 + 5·√126 for 64 tokens.
func (s *subject) distribution(t *testing.T) {
	const vocab, rows, rounds, temperature = 64, 16, 256, 0.8
	r, m := rng(64), &tensors{}
	z := normal(r, vocab, 1)
	rig := s.rig(t, samplePlan(m, m.table("x", z, vocab), vocab, rows))
	var counts [vocab]float64
	for round := range rounds {
		var list []sampleCase
		for i := range rows {
			list = append(list, sampleCase{history: []int32{0}, row: backend.SampleRow{
				Seed: 42, Position: int32(round*rows + i), Temperature: temperature, TopP: 1, Repetition: 1,
			}})
		}
		rig.runCases(list)
		for _, id := range rig.dev.Step(0).Sampled[:rows] {
			counts[id]++
		}
	}
	sum := 0.0
	for _, x := range z {
		sum += math.Exp(float64(x) / temperature)
	}
	chi := 0.0
	for id, n := range counts {
		want := math.Exp(float64(z[id])/temperature) / sum * rows * rounds
		chi += (n - want) * (n - want) / want
	}
	if limit := 63 + 5*math.Sqrt(126); chi > limit {
		t.Errorf("χ² of %d draws is %.1f, at most %.1f", rows*rounds, chi, limit)
	}
}
