package speed

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"vapp.dev/engine/backend"
	"vapp.dev/kernels/cuda/cost"
)

// LaunchLister is a Layout that knows the launches of a step without a device: backend cuda's.
type LaunchLister interface {
	// Launches returns a function that lists the launches of p's steps, by their tokens, sequences and sampled rows.
	Launches(p *backend.Program) (func(tokens, seqs, samples int) ([]cost.Launch, error), error)
}

// launches is the model of a program's steps on a GPU.
type launches struct {
	gpu  cost.GPU
	list func(tokens, seqs, samples int) ([]cost.Launch, error)
}

// StepTime is a step's predicted time on a GPU, in seconds.
type StepTime struct {
	Launches int
	Seconds  float64
	Fixed    float64 // of Seconds: the gaps between launches, their ramps
	Limit    float64 // in which weights, keys and values can be read, or the products multiplied
	Bytes    float64 // of weights, keys, values and states
	Flops    float64
	Kernels  []KernelTime // the longest first
}

// KernelTime is the part of a kernel in a step.
type KernelTime struct {
	Kernel   string  `json:"kernel"`
	Launches int     `json:"launches"`
	Seconds  float64 `json:"seconds"`
	Limit    float64 `json:"limit_seconds"` // in which weights, keys and values can be read, or the products multiplied
	Bytes    float64 `json:"bytes"`         // of weights, keys, values, states and activations
	Flops    float64 `json:"operations"`
	Bound    string  `json:"bound_by"` // what bounds most of it: memory, matrix, issue, longest block, launch
}

// newLaunches returns the model of p on a GPU. It counts a step of each size that has launches of its own, so that it
// fails here and not in a step.
func newLaunches(l backend.Layout, p *backend.Program, g cost.GPU) (*launches, error) {
	from, ok := l.(LaunchLister)
	if !ok {
		return nil, &NoRowError{g.Name, "its layout does not list launches"}
	}
	m := &launches{gpu: g}
	var err error
	if m.list, err = from.Launches(p); err != nil {
		return nil, err
	}
	for n := 1; ; n = min(2*n, p.Bucket.Tokens) {
		steps := [][]Row{{{Count: n, Draw: true}}}
		if n <= min(p.Bucket.Seqs, p.Bucket.Samples) {
			steps = append(steps, slices.Repeat([]Row{{From: 1, Count: 1, Draw: true}}, n))
		}
		for _, rows := range steps {
			if _, err := m.step(rows); err != nil {
				return nil, err
			}
		}
		if n == p.Bucket.Tokens {
			return m, nil
		}
	}
}

// step predicts a step.
func (m *launches) step(rows []Row) (StepTime, error) {
	c := cost.Counter{Rows: make([]cost.Row, len(rows))}
	tokens, samples := 0, 0
	for i, r := range rows {
		c.Rows[i] = cost.Row{From: r.From, Count: r.Count}
		tokens += r.Count
		if r.Draw {
			samples++
		}
	}
	list, err := m.list(tokens, len(rows), samples)
	if err != nil {
		return StepTime{}, err
	}
	out := StepTime{Launches: len(list)}
	works := make([]cost.Work, len(list))
	at, bounds := map[string]int{}, map[string]map[string]float64{}
	for i, l := range list {
		w, err := c.Count(l)
		if err != nil {
			return StepTime{}, fmt.Errorf("speed: %w", err)
		}
		t := m.gpu.Time(w)
		works[i] = w
		out.Seconds, out.Fixed = out.Seconds+t.Seconds(), out.Fixed+t.Fixed
		out.Bytes, out.Flops = out.Bytes+w.Weights+w.KV, out.Flops+w.Flops
		k, ok := at[l.Kernel]
		if !ok {
			k = len(out.Kernels)
			at[l.Kernel], bounds[l.Kernel] = k, map[string]float64{}
			out.Kernels = append(out.Kernels, KernelTime{Kernel: l.Kernel})
		}
		of := &out.Kernels[k]
		of.Launches, of.Seconds, of.Limit = of.Launches+1, of.Seconds+t.Seconds(), of.Limit+m.gpu.Limit([]cost.Work{w})
		of.Bytes, of.Flops = of.Bytes+w.Bytes(), of.Flops+w.Flops
		bounds[l.Kernel][t.Bound()] += t.Seconds()
		if b := t.Bound(); of.Bound == "" || bounds[l.Kernel][b] > bounds[l.Kernel][of.Bound] {
			of.Bound = b
		}
	}
	out.Limit = m.gpu.Limit(works)
	slices.SortStableFunc(out.Kernels, func(a, b KernelTime) int { return cmp.Compare(b.Seconds, a.Seconds) })
	return out, nil
}

// seconds returns the time of a step; a step that the program does not hold never ends.
func (m *launches) seconds(rows []Row) float64 {
	t, err := m.step(rows)
	if err != nil {
		return math.Inf(1)
	}
	return t.Seconds
}

// OnGPU returns the predicted parts of a step's time; ok is false for a model of a CPU.
func (m *Model) OnGPU(rows []Row) (t StepTime, ok bool, err error) {
	if m.gpu == nil {
		return t, false, nil
	}
	t, err = m.gpu.step(rows)
	return t, true, err
}
