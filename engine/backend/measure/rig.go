package measure

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"vapp.dev/engine/backend"
	"vapp.dev/engine/backend/dry"
	"vapp.dev/engine/speed"
)

// rounds is how often each step of a part is measured, in turns with the part's other steps: a
// disturbance of a moment then meets all of them.
const rounds = 9

// rig is an open device with programs whose ops are timed.
type rig struct {
	dev   backend.Device
	timer backend.OpTimer
	exes  []backend.Executable
	set   int
	// rounds of a measurement beside the warm-up
	rounds  int
	present *reading
}

// reading is what memory reads during a measurement.
type reading struct {
	probe func() float64
	base  float64 // the rate at which times are stated meanwhile
	seen  []float64
}

// now returns the present rate in bytes per second.
func (r *reading) now() float64 {
	if r.probe == nil {
		return r.base
	}
	rate := r.probe()
	r.seen = append(r.seen, rate)
	return rate
}

// median returns the median of the rates that now returned.
func (r *reading) median() float64 {
	if len(r.seen) == 0 {
		return r.base
	}
	s := slices.Sorted(slices.Values(r.seen))
	return s[len(s)/2]
}

// machine is where rigs are opened.
type machine struct {
	ctx      context.Context
	opener   backend.Opener
	facts    backend.Facts
	settings backend.Settings
	rounds   int
	present  *reading
}

// open opens a device for programs that share weights and classes, with as many pages as pages, and packs
// random weights.
func (m machine) open(programs []*backend.Program, pages int) (_ *rig, err error) {
	if err := m.ctx.Err(); err != nil {
		return nil, err
	}
	s := m.settings
	s.TimeOps = true
	l, err := m.opener.Layout(m.facts, s)
	if err != nil {
		return nil, err
	}
	p := programs[0]
	step := backend.StepShape{Tokens: p.Bucket.Tokens, Seqs: p.Bucket.Seqs, Samples: p.Bucket.Samples, Vocab: p.Vocab, Bias: 1, Logprobs: 1}
	var kv int64
	for _, c := range p.Classes {
		step.MaxPages = append(step.MaxPages, c.MaxPages)
		kv += int64(pages/c.PagesPerSlab+1) * c.SlabBytes
	}
	res, err := dry.Run(l, p.Weights, programs, step, kv)
	if err != nil {
		return nil, err
	}
	dev, err := m.opener.Open(m.facts, s, res)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, dev.Close())
		}
	}()
	timer, ok := dev.(backend.OpTimer)
	if !ok {
		return nil, backend.Unsupported(m.opener.Name(), "measured rates", "its device does not time ops")
	}
	r := &rig{dev: dev, timer: timer, rounds: m.rounds, present: m.present}
	for i := range p.Weights {
		if err := m.ctx.Err(); err != nil {
			return nil, err
		}
		if err := dev.Pack(i, noise{}); err != nil {
			return nil, err
		}
	}
	for _, p := range programs {
		e, err := dev.Compile(p)
		if err != nil {
			return nil, err
		}
		r.exes = append(r.exes, e)
	}
	return r, nil
}

// shape is a step to measure: a program and its rows.
type shape struct {
	exe   backend.Executable
	rows  []speed.Row
	bytes float64 // of weights, which the step reads from memory; 0: none
}

// time returns for each shape the seconds of each op, summed by name: the lower quartile of the
// rounds, because what disturbs a measurement makes it longer only. Ops of a shape with bytes are
// stated at the base rate of reading.
func (r *rig) time(ctx context.Context, shapes []shape) ([]map[string]float64, error) {
	all := make([]map[string][]float64, len(shapes))
	reads := slices.ContainsFunc(shapes, func(s shape) bool { return s.bytes > 0 })
	rate := r.present.base
	for round := -1; round < r.rounds; round++ { // the first round is a warm-up
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		if reads {
			rate = r.present.now()
		}
		for i, s := range shapes {
			if round < 0 {
				all[i] = map[string][]float64{}
			}
			before := r.total()
			if err := r.launch(s.exe, s.rows); err != nil {
				return nil, err
			}
			for op, t := range r.total() {
				if round < 0 {
					continue
				}
				t -= before[op]
				if s.bytes > 0 && (op == "linear" || op == "experts") {
					t = speed.AtRead(t, s.bytes, rate, r.present.base)
				}
				all[i][op] = append(all[i][op], t)
			}
		}
	}
	out := make([]map[string]float64, len(shapes))
	for i, ops := range all {
		out[i] = map[string]float64{}
		for op, t := range ops {
			slices.Sort(t)
			out[i][op] = t[len(t)/4]
		}
	}
	return out, nil
}

// total returns the seconds that each op has taken so far.
func (r *rig) total() map[string]float64 {
	out := map[string]float64{}
	decode, prompts := r.timer.OpTimes()
	for _, t := range append(decode, prompts...) {
		out[t.Op] += t.Wall.Seconds()
	}
	return out
}

// launch runs a step: every sequence has pages of its own as far as there are some.
func (r *rig) launch(e backend.Executable, rows []speed.Row) error {
	p := e.Program()
	r.set = 1 - r.set
	s := r.dev.Step(r.set)
	at, samples := 0, 0
	s.First[0] = 0
	for q, row := range rows {
		for i := range row.Count {
			s.Tokens[at], s.Positions[at], s.Seq[at] = int32((q*31+i*7)%max(1, p.Vocab)), int32(row.From+i), int32(q)
			at++
		}
		s.First[q+1] = int32(at)
		for c, class := range p.Classes {
			for i := range class.MaxPages {
				s.Pages[c][q*class.MaxPages+i] = int32((q*pagesOf(rows, class) + i) % probePages)
			}
		}
		if row.Draw {
			s.Rows[samples] = int32(at - 1)
			s.Sampling[samples] = backend.SampleRow{TopP: 1, Repetition: 1, Seq: int32(q), HistoryLen: int32(row.From + row.Count)}
			samples++
		}
	}
	if err := r.dev.Launch(e, backend.Binding{Set: r.set, Tokens: at, Seqs: len(rows), Samples: samples}); err != nil {
		return fmt.Errorf("program %s: %w", p.Name, err)
	}
	return r.dev.Wait(r.set)
}

// pagesOf returns how many pages the longest of the sequences takes of a class.
func pagesOf(rows []speed.Row, c backend.KVClass) int {
	if c.State != nil {
		return 1
	}
	most := 0
	for _, r := range rows {
		most = max(most, (r.From+r.Count+c.BlockSize-1)/c.BlockSize)
	}
	return most
}

// probePages is the number of pages of a rig.
const probePages = 512

func (r *rig) close() error { return r.dev.Close() }
