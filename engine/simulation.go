package engine

import (
	"errors"
	"fmt"
	"math"

	"vapp.dev/engine/backend"
	"vapp.dev/engine/kv"
	"vapp.dev/engine/sample"
	"vapp.dev/engine/sched"
	"vapp.dev/engine/speed"
	"vapp.dev/engine/steptime"
)

// StepTimer predicts the seconds of a step with these rows, above 0.
type StepTimer interface {
	Step(rows []speed.Row) float64
}

// EncodeTimer is a StepTimer that predicts the seconds in which the vision tower encodes an item of
// that many patches into that many rows.
type EncodeTimer interface {
	Encode(patches, rows int) float64
}

// Simulation is an engine on a simulated clock: the engine's own scheduler over its own pages makes the steps,
// and each takes the time of a StepTimer. The same calls give the same times. Times are seconds from the start.
type Simulation struct {
	options  Options
	pool     *kv.Pool
	sched    *sched.Scheduler
	limiter  *steptime.PrefillLimiter // nil: only maxNumBatchedTokens limits prefill
	timer    StepTimer
	schedule sched.Options
	encodes  EncodeTimer // nil: requests have no items
	lag      int
	arrivals []arrival // submitted and not received, in order
	courses  map[*sched.Seq]*Course
	flights  []simulatedStep // scheduled and not committed, oldest first
	now      float64         // when the loop goes on
	wait     bool            // it goes on by committing the oldest step
	free     float64         // when the device has run all scheduled steps
	busy     float64
	steps    int
	count    int
}

// arrival is a request that the loop has not received.
type arrival struct {
	at     float64
	seq    *sched.Seq
	course *Course
}

// simulatedStep is a scheduled step, the seconds it takes and when it ends.
type simulatedStep struct {
	step       *sched.Step
	took, ends float64
}

// Course is what happens to a simulated request.
type Course struct {
	Arrival float64
	Tokens  []float64 // when each output token was there, ascending
}

// SimulationError reports an engine whose steps cannot be simulated.
type SimulationError struct{ Why string }

func (e *SimulationError) Error() string { return "engine: no simulation: " + e.Why }

// NewSimulation returns an idle engine of an account at time 0. It opens no device. The account is of a model without
// pipeline stages. It fails with a *SimulationError for pooling models and speculation. Swapping takes no time.
func NewSimulation(o Options, a *Account, t StepTimer) (*Simulation, error) {
	switch {
	case a.Reservation.Step.OutputCols > 0:
		return nil, &SimulationError{"a pooling model generates no tokens"}
	case o.Drafts > 0:
		return nil, &SimulationError{"with speculation the time depends on the text"}
	}
	schedule := schedOptions(o, a)
	pool := kv.NewPool(a.KV, a.KV.Slabs(a.Reservation.Arenas[backend.KV]), o.PrefixCaching)
	s := &Simulation{options: o, pool: pool, schedule: schedule, sched: sched.New(schedule, pool), timer: t, lag: schedule.Lag, courses: map[*sched.Seq]*Course{}, now: math.Inf(1)}
	s.encodes, _ = t.(EncodeTimer)
	if swap := a.KV.Slabs(a.Reservation.Arenas[backend.Swap]); swap > 0 {
		s.sched.SetSwap(kv.NewPool(a.KV, swap, false))
	}
	if o.ITLTarget > 0 {
		s.limiter = steptime.New(o.ITLTarget.Seconds())
		s.sched.SetPrefillLimiter(s.limiter)
	}
	return s, nil
}

// Submit adds a request that arrives at a time, not before the time of the last Advance or Submit. Its output has
// exactly that many tokens. Pixels of its items are not read. The error is an *ItemError for an item that the
// engine refuses, and a *SimulationError for any if the timer is no EncodeTimer.
func (s *Simulation) Submit(at float64, prompt []int32, output int, items ...Item) (*Course, error) {
	if n := len(s.arrivals); n > 0 && at < s.arrivals[n-1].at {
		return nil, fmt.Errorf("engine: a request is submitted for %g s after one for %g s", at, s.arrivals[n-1].at)
	}
	if len(items) > 0 && s.encodes == nil {
		return nil, &SimulationError{"the times of steps do not say how long images take"}
	}
	pictures := simulatedItems(items)
	if err := s.schedule.CheckItems(len(prompt), pictures, false); err != nil {
		return nil, err
	}
	params := sample.Default()
	params.MaxTokens, params.IgnoreEOS = output, true
	s.count++
	c := &Course{Arrival: at, Tokens: make([]float64, 0, min(output, s.options.MaxModelLen))}
	s.arrivals = append(s.arrivals, arrival{at, sched.NewSeq(sched.Spec{ID: fmt.Sprint(s.count), Prompt: prompt, Params: &params, Items: pictures}), c})
	if !s.wait {
		s.now = min(s.now, at) // the loop is idle
	}
	return c, nil
}

// Advance runs the loop until a time; +Inf runs it until nothing is left to do. The error is a *sched.NeverFitsError
// for a request that the engine refuses.
func (s *Simulation) Advance(until float64) error {
	for s.now < until {
		if err := s.iterate(); err != nil {
			return err
		}
	}
	return nil
}

// iterate is one iteration of loop.runSteps at s.now: it commits the step that has ended, receives what has arrived and
// schedules a step. Then it waits for a step, for an arrival, or not at all.
func (s *Simulation) iterate() error {
	if s.wait {
		s.commit()
	}
	if err := s.receive(); err != nil {
		return err
	}
	step := s.sched.Next()
	if step != nil {
		s.launch(step)
	}
	switch {
	case len(s.flights) > s.lag, len(s.flights) > 0 && step == nil:
		s.wait, s.now = true, s.flights[0].ends
	case step != nil:
		s.wait = false
	default:
		s.wait, s.now = false, math.Inf(1)
		if len(s.arrivals) > 0 {
			s.now = s.arrivals[0].at
		}
		if len(s.arrivals) == 0 && !s.sched.Idle() {
			return errors.New("engine: the simulated scheduler has requests and no step")
		}
	}
	return nil
}

// receive adds the requests that have arrived.
func (s *Simulation) receive() error {
	for len(s.arrivals) > 0 && s.arrivals[0].at <= s.now {
		a := s.arrivals[0]
		s.arrivals = s.arrivals[1:]
		if err := s.sched.Add(a.seq); err != nil {
			return err
		}
		s.courses[a.seq] = a.course
	}
	return nil
}

// launch starts a step when the device is free.
func (s *Simulation) launch(step *sched.Step) {
	took := s.timer.Step(rowsOf(step))
	for _, e := range step.Encodes {
		took += s.encodes.Encode(len(e.Item.Across), e.Item.Tokens)
	}
	s.free = max(s.free, s.now) + took
	s.busy += took
	s.flights = append(s.flights, simulatedStep{step, took, s.free})
}

// commit commits the oldest step at s.now.
func (s *Simulation) commit() {
	done := s.flights[0]
	s.flights = append(s.flights[:0], s.flights[1:]...)
	s.wait, s.steps = false, s.steps+1
	if s.limiter != nil {
		s.limiter.Learn(done.step.Work, done.took)
	}
	for _, o := range s.sched.Commit(done.step, noTokens(done.step)) {
		if o.Token >= 0 {
			c := s.courses[o.Seq]
			c.Tokens = append(c.Tokens, s.now)
		}
		if o.Finish != sched.NotFinished {
			delete(s.courses, o.Seq)
		}
	}
}

// Counts returns how many requests run and wait, those that have not arrived left out.
func (s *Simulation) Counts() (running, waiting int) { return s.sched.Counts() }

// Cached returns how many leading tokens of a prompt with these items are in the prefix cache.
func (s *Simulation) Cached(prompt []int32, items ...Item) int {
	return s.pool.Cached(prompt, s.schedule.Places(simulatedItems(items))...)
}

// simulatedItems returns items as the scheduler has them.
func simulatedItems(items []Item) []sched.Item {
	if len(items) == 0 {
		return nil
	}
	out := make([]sched.Item, len(items))
	for i, m := range items {
		out[i] = sched.Item{Hash: m.Hash, Name: m.Name, At: m.At, Tokens: m.Tokens, Across: m.Across, Down: m.Down}
	}
	return out
}

// KVUsed returns the share of KV pages that running requests use, 0 to 1.
func (s *Simulation) KVUsed() float64 { return s.pool.Share() }

// Busy returns the seconds in which the device ran steps.
func (s *Simulation) Busy() float64 { return s.busy }

// Steps returns how many steps were committed.
func (s *Simulation) Steps() int { return s.steps }

// rowsOf returns a step's rows as the model of its time sees them.
func rowsOf(s *sched.Step) []speed.Row {
	rows := make([]speed.Row, len(s.Rows))
	for i, r := range s.Rows {
		rows[i] = speed.Row{From: r.From, Count: r.Count, Draw: r.Draw}
	}
	return rows
}

// noTokens returns a result in which every row sampled token 0.
func noTokens(s *sched.Step) sched.Result {
	return sched.Result{Tokens: make([]int32, s.Samples), Status: make([]int32, s.Samples)}
}
