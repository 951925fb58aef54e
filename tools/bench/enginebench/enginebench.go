// Package enginebench measures the prefill and decode speed of an engine without HTTP, and
// compares it with the limits of the machine. It must not name a concrete backend: the
// command gives it the machine, its backends and the function that measures limits.
// Start reading at Run.
package enginebench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime/debug"
	"time"

	"vapp.dev/appliance"
	"vapp.dev/engine"
	"vapp.dev/schema"
)

// Options say what a run measures.
type Options struct {
	Prompt, Output, Streams, Repeat int
	Layers                          int      // run only the first Layers layers of the model; 0: all
	Work                            []string // rows that replace the two of Prompt, Output and Streams
	OpTimes                         bool     // measure the time of each op
	Eager                           bool     // without CUDA graphs
	// Limits measures the machine; nil: not measured.
	Limits   func(*appliance.Prepared) (Limits, error)
	Progress func(engine.Progress) // of loading
}

// Run measures the profile at path on machine m. A report that comes with an error has the
// rows measured before the error; the report is nil where there are none.
func Run(ctx context.Context, path string, m appliance.Machine, o Options) (*Report, error) {
	p, err := o.prepare(path, m)
	if err != nil {
		return nil, err
	}
	defer p.Close()
	var top Limits
	if o.Limits != nil {
		if top, err = o.Limits(p); err != nil {
			return nil, err
		}
	}
	resident, start := beginPeak(), time.Now()
	s, err := o.open(ctx, p)
	if err != nil {
		return nil, err
	}
	defer s.eng.Close()
	r := s.report(top, time.Since(start))
	if p.Opener.Name() == "cuda" {
		if s.predictor, err = predictor(p); err != nil {
			r.Unpredicted = err.Error()
		}
	}
	var cut error
	if r.Rows, cut = s.measure(ctx); cut != nil {
		if len(r.Rows) == 0 {
			return nil, cut
		}
		r.Cut = fmt.Sprintf("interrupted after %d rows", len(r.Rows))
		if ctx.Err() == nil {
			r.Cut = fmt.Sprintf("failed after %d rows: %v", len(r.Rows), cut)
		}
	}
	if r.Memory, err = s.memory(resident); err != nil {
		return nil, errors.Join(cut, err)
	}
	return &r, cut
}

// Turns loads the profile at path and then serves turns: see session.turns. It measures no
// limits; a caller measures them between turns if it needs them.
func Turns(ctx context.Context, path string, m appliance.Machine, o Options, in io.Reader, out io.Writer) error {
	p, err := o.prepare(path, m)
	if err != nil {
		return err
	}
	defer p.Close()
	s, err := o.open(ctx, p)
	if err != nil {
		return err
	}
	defer s.eng.Close()
	return s.turns(ctx, in, out)
}

// open loads the model.
func (o Options) open(ctx context.Context, p *appliance.Prepared) (session, error) {
	config := p.EngineConfig(engine.Hooks{}, o.Progress)
	config.Options.Backend.TimeOps = o.OpTimes
	eng, err := p.OpenEngine(ctx, config)
	if err != nil {
		return session{}, err
	}
	debug.FreeOSMemory() // as vapp up does after loading
	return session{Options: o, p: p, eng: eng}, nil
}

// session is a loaded model and the options of the run.
type session struct {
	Options
	p   *appliance.Prepared
	eng *engine.Engine
	// predictor is the cost model of the GPU; nil: there is none.
	predictor *engine.Predictor
}

// report returns the report without its rows and memory.
func (s session) report(top Limits, load time.Duration) Report {
	p := s.p
	r := Report{
		Profile: p.Profile.Name, Weights: "weights of the checkpoint", Device: p.Plan.Facts.Device,
		Load: load.Seconds(), Limits: top, Matrix: top.matrix(p.Plan.Choices),
	}
	if p.Profile.Model.LoadFormat == "dummy" {
		r.Weights = "random weights"
	}
	if s.Layers > 0 {
		r.Weights += fmt.Sprintf(", its first %d layers", s.Layers)
	}
	for _, c := range p.Plan.Choices {
		switch c.Name {
		case "variant":
			r.Variant = c.Value
		case "threads":
			r.Threads = c.Value
		}
	}
	return r
}

// measure runs the rows. With an error it returns the rows that ran before.
func (s session) measure(ctx context.Context) ([]Row, error) {
	rows, err := s.rows()
	if err != nil {
		return nil, err
	}
	var out []Row
	for _, w := range rows {
		before := s.opTimes()
		row, err := w.measure(ctx, s.eng, s.Repeat, int32(s.p.Model.Family.Vocab()))
		if err != nil {
			return out, err
		}
		cost := costOf(s.p.Plan.Account.Reservation, w.Prompt+w.Output/2)
		row.StepRead, row.PromptOp, row.DecodeOp = cost.step(w.Streams), cost.prompt, cost.decode
		if s.OpTimes {
			row.Steps = stepTimes(s.threads(), before, s.opTimes())
		}
		if s.predictor != nil {
			if row.Predicted, err = s.predicted(w); err != nil {
				return append(out, row), err
			}
		}
		out = append(out, row)
	}
	return out, nil
}

// memory compares planned with allocated memory: an arena that differs by a byte is an
// error; the peak of resident memory is reported next to the planned total.
func (s session) memory(resident peak) (Memory, error) {
	m := Memory{Planned: s.p.Ledger().Total()}
	for _, l := range s.p.Ledger() {
		m.Items = append(m.Items, LedgerItem{l.Name, l.Bytes, string(l.Basis)})
	}
	for _, l := range s.p.Ledger().Compare(s.eng.Usage()) {
		m.Arenas, m.Taken = m.Arenas+l.Planned, m.Taken+l.Actual
		if l.Difference() != 0 {
			return m, fmt.Errorf("bench: %v", l)
		}
	}
	if total, before, now, ok := s.eng.Memory(); ok {
		graphs, _ := s.eng.GraphBytes()
		m.GPU = &GPUMemory{total, before, now, graphs}
	}
	var err error
	if m.Peak, err = resident.bytes(); err != nil {
		m.Unmeasured = err.Error()
	}
	return m, nil
}

// Follow runs a rank other than 0 of a run of the profile at path.
func Follow(path string, o Options, c appliance.FollowConfig) error {
	profile, m, cleanup, err := o.profile(path, c.Machine)
	if err != nil {
		return err
	}
	defer cleanup()
	c.Profile, c.Machine = profile, m
	return appliance.Follow(c)
}

// prepare plans the profile of a run.
func (o Options) prepare(path string, m appliance.Machine) (*appliance.Prepared, error) {
	profile, m, cleanup, err := o.profile(path, m)
	if err != nil {
		return nil, err
	}
	defer cleanup()
	return appliance.PrepareProfile(profile, m)
}

// profile returns the profile at path with a KV cache that just holds the rows, and with random weights where the model has
// no loadable ones. The machine may have the config of fewer layers, until cleanup.
func (o Options) profile(path string, m appliance.Machine) (profile *schema.Profile, _ appliance.Machine, cleanup func(), err error) {
	cleanup = func() {}
	defer func() {
		if err != nil {
			cleanup()
		}
	}()
	if profile, err = m.Load(path); err != nil {
		return nil, m, nil, err
	}
	rows, err := o.rows()
	if err != nil {
		return nil, m, nil, err
	}
	length, streams, tokens := capacityFor(rows)
	profile.MaxModelLen = schema.Count(length)
	profile.Scheduler.MaxNumSeqs = min(profile.Scheduler.MaxNumSeqs, max(streams, 1))
	profile.Memory.KVCache, profile.Memory.Utilization = 0, 1
	profile.Parsers.Reasoning, profile.Parsers.ToolCall, profile.Parsers.AutoToolChoice = "", "", false
	profile.Speculative, profile.Multimodal, profile.Require = nil, nil, nil
	if m.Ranks.Place.World <= 1 {
		profile.Parallel.Tensor, profile.Parallel.Pipeline, profile.CPU.Ranks = 1, 1, 1
	}
	if o.Eager {
		profile.Cudagraph = &schema.Cudagraph{Mode: "none"}
	}
	if o.Layers > 0 {
		dir, err := os.MkdirTemp("", "vapp-bench-")
		if err != nil {
			return nil, m, nil, err
		}
		cleanup = func() { os.RemoveAll(dir) }
		if m.Config, err = o.cutConfig(profile, dir); err != nil {
			return nil, m, cleanup, err
		}
	}
	p, err := appliance.PrepareProfile(profile, m)
	var refused *schema.Error
	if errors.As(err, &refused) && refused.List[0].Path == "maxModelLen" {
		return nil, m, cleanup, fmt.Errorf("a row is too long (--prompt-len, --output-len, --work): %s", refused.List[0].Message)
	}
	if err != nil {
		return nil, m, cleanup, err
	}
	perToken := p.Plan.Capacity.BytesPerToken
	// The scheduler allocates one block ahead for each stream, and the last slabs of each
	// class are partly empty.
	slack := min(64<<20, perToken*int64(streams)*blockSize+2*p.Plan.Account.KV.SlabBytes*int64(len(p.Plan.Account.KV.Specs)))
	profile.Memory.KVCache, profile.Memory.Utilization = schema.Bytes(perToken*int64(tokens)+slack), 0
	if p.Model.Loadable() != nil {
		profile.Model.LoadFormat = "dummy"
	}
	return profile, m, cleanup, errors.Join(p.Refuse(), p.Close())
}
