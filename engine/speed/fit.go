package speed

import (
	"errors"
	"fmt"
	"math"
	"slices"
)

// Steps is what steps of an engine were measured to take, as a function of what they compute: the model of a whole
// step, where Model adds up its ops. Times are seconds.
type Steps struct {
	Rows   Curve   `json:"seconds_by_tokens"`          // of a step by the tokens that it computes
	Decode float64 `json:"seconds_per_sequence"`       // more for each sequence that decodes
	Reads  float64 `json:"seconds_per_decode_read"`    // for each position that a decoding token attends to
	Pairs  float64 `json:"seconds_per_prompt_pair"`    // for each pair of a prompt's token and a position that it sees
	Ratios Curve   `json:"measured_by_fitted_seconds"` // by quantile, 0 to 1: how much steps differ from the fit
}

// Sample is a measured step: tokens of decoding sequences and of prompts, the positions that they attend to in sum,
// and seconds.
type Sample struct {
	Decode, Prompt     int
	Reads, PromptReads int64
	Seconds            float64
}

// Step returns the seconds of a step without what chance adds: Ratios is left out. It implements engine.StepTimer.
func (m *Steps) Step(rows []Row) float64 {
	var s Sample
	for _, r := range rows {
		reads := int64(r.Count)*int64(r.From) + int64(r.Count)*int64(r.Count+1)/2
		if r.Count == 1 {
			s.Decode, s.Reads = s.Decode+1, s.Reads+reads
		} else {
			s.Prompt, s.PromptReads = s.Prompt+r.Count, s.PromptReads+reads
		}
	}
	return m.at(s)
}

func (m *Steps) at(s Sample) float64 {
	return m.Rows.At(float64(s.Decode+s.Prompt)) + m.Decode*float64(s.Decode) + m.Reads*float64(s.Reads) + m.Pairs*float64(s.PromptReads)
}

// Check returns an error if a figure is no possible time.
func (m *Steps) Check() error {
	if err := m.Rows.check(mostSeconds); err != nil {
		return fmt.Errorf("speed: seconds by tokens: %w", err)
	}
	if err := m.Ratios.check(mostFactor); err != nil {
		return fmt.Errorf("speed: measured by fitted seconds: %w", err)
	}
	for _, x := range []float64{m.Decode, m.Reads, m.Pairs} {
		if !(x >= 0 && x <= mostSeconds) {
			return fmt.Errorf("speed: %g seconds for a sequence, %g for a read and %g for a pair: want 0 to %d", m.Decode, m.Reads, m.Pairs, mostSeconds)
		}
	}
	if !slices.IsSorted(m.Ratios.Y) {
		return errors.New("speed: measured by fitted seconds: the quantiles do not ascend")
	}
	return nil
}

// TooFewStepsError reports measured steps from which no model can be fitted.
type TooFewStepsError struct{ Steps, Want int }

func (e *TooFewStepsError) Error() string {
	return fmt.Sprintf("speed: %d steps were measured; a model needs %d or more", e.Steps, e.Want)
}

// fewest is how many samples Fit needs.
const fewest = 16

// Fit returns the model with the least squares of relative errors. No coefficient is negative, so more work never
// takes less time. Samples of the same work are first replaced by their median, so that single steps that were
// disturbed do not count; Ratios has them.
func Fit(samples []Sample) (*Steps, error) {
	if len(samples) < fewest {
		return nil, &TooFewStepsError{len(samples), fewest}
	}
	most := 0
	for _, s := range samples {
		if s.Decode+s.Prompt < 1 || !(s.Seconds > 0) {
			return nil, fmt.Errorf("speed: a step of %d tokens that took %g seconds was measured", s.Decode+s.Prompt, s.Seconds)
		}
		most = max(most, s.Decode+s.Prompt)
	}
	knots := []float64{1}
	for k := 2; k < most; k *= 2 {
		knots = append(knots, float64(k))
	}
	if most > 1 {
		knots = append(knots, float64(most))
	}
	x := leastSquares(medians(samples), knots)
	m := &Steps{Decode: x[len(knots)], Reads: x[len(knots)+1], Pairs: x[len(knots)+2]}
	y := 0.0
	for i, k := range knots {
		y += x[i]
		m.Rows.X, m.Rows.Y = append(m.Rows.X, k), append(m.Rows.Y, max(y, 1e-9))
	}
	ratios := make([]float64, len(samples))
	for i, s := range samples {
		ratios[i] = s.Seconds / m.at(s)
	}
	slices.Sort(ratios)
	const parts = 20
	for q := range parts {
		at := (float64(q) + 0.5) / parts
		m.Ratios.X = append(m.Ratios.X, at)
		m.Ratios.Y = append(m.Ratios.Y, ratios[int(at*float64(len(ratios)))])
	}
	return m, m.Check()
}

// medians returns one sample for those of like work: the same tokens, and reads of the same power of 2^(1/4).
func medians(samples []Sample) []Sample {
	type like struct{ decode, prompt, reads, pairs int }
	step := func(n int64) int { return int(4 * math.Log2(float64(1+n))) }
	var order []like
	groups := map[like][]Sample{}
	for _, s := range samples {
		k := like{s.Decode, s.Prompt, step(s.Reads), step(s.PromptReads)}
		if groups[k] == nil {
			order = append(order, k)
		}
		groups[k] = append(groups[k], s)
	}
	out := make([]Sample, 0, len(order))
	for _, k := range order {
		g := groups[k]
		slices.SortStableFunc(g, func(a, b Sample) int {
			if a.Seconds < b.Seconds {
				return -1
			} else if a.Seconds > b.Seconds {
				return 1
			}
			return 0
		})
		out = append(out, g[len(g)/2])
	}
	return out
}

// leastSquares returns the steps up of the curve at knots, and the coefficients of Decode, Reads and PromptReads: all 0
// or more, by coordinate descent on the normal equations of relative errors.
func leastSquares(samples []Sample, knots []float64) []float64 {
	n := len(knots) + 3
	a, y := make([][]float64, n), make([]float64, n)
	for i := range a {
		a[i] = make([]float64, n)
	}
	f := make([]float64, n)
	for _, s := range samples {
		rows := float64(s.Decode + s.Prompt)
		f[0] = 1
		for i := 1; i < len(knots); i++ { // the part of the way from the knot before
			f[i] = min(1, max(0, (rows-knots[i-1])/(knots[i]-knots[i-1])))
		}
		f[n-3], f[n-2], f[n-1] = float64(s.Decode), float64(s.Reads), float64(s.PromptReads)
		for i := range f {
			f[i] /= s.Seconds
		}
		for i := range f {
			y[i] += f[i]
			for j := range f {
				a[i][j] += f[i] * f[j]
			}
		}
	}
	x := make([]float64, n)
	for range 5000 {
		for i := range x {
			if a[i][i] == 0 {
				continue
			}
			g := y[i]
			for j := range x {
				g -= a[i][j] * x[j]
			}
			x[i] = max(0, x[i]+g/a[i][i])
		}
	}
	return x
}
