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

// Load is a number of equal requests that arrive at once.
type Load struct{ Streams, Prompt, Output int }

// Forecast is the predicted course of a Load, in seconds.
type Forecast struct {
	Load
	First float64 // until the last stream has its first token
	Last  float64 // until the last token of all
	After int     // tokens that come after First
	Steps int
}

// Prefill returns prompt tokens a second until the last stream has its first token.
func (f Forecast) Prefill() float64 { return float64(f.Streams*f.Prompt) / f.First }

// Decode returns the tokens a second after that; 0 if there are none.
func (f Forecast) Decode() float64 {
	if f.After == 0 {
		return 0
	}
	return float64(f.After) / (f.Last - f.First)
}

// Total returns prompt and generated tokens a second over the whole time.
func (f Forecast) Total() float64 { return float64(f.Streams*(f.Prompt+f.Output)) / f.Last }

// Predictor predicts the time of loads on the engine of an account.
type Predictor struct {
	options Options
	account *Account
	model   *speed.Model
}

// NewPredictor returns a predictor with the rates of a machine. It opens no device. It fails with a
// *speed.UnknownOpError for a model with an op that has no rate, and refuses pooling models and
// speculation, whose speed depends on the text.
func NewPredictor(o Options, a *Account, r *speed.Rates) (*Predictor, error) {
	switch {
	case a.Reservation.Step.OutputCols > 0:
		return nil, errors.New("a pooling model generates no tokens")
	case o.Drafts > 0:
		return nil, errors.New("with speculation it depends on the text")
	}
	m, err := speed.New(a.Layout, a.Reservation.Programs[0], r)
	if err != nil {
		return nil, err
	}
	return &Predictor{options: o, account: a, model: m}, nil
}

// Bases returns the basis of each kernel's rate.
func (p *Predictor) Bases() map[string]speed.Basis { return p.model.Bases() }

// Step returns the seconds of a step in which that many sequences of a length each decode a token.
func (p *Predictor) Step(streams, length int) float64 {
	rows := make([]speed.Row, streams)
	for i := range rows {
		rows[i] = speed.Row{From: max(0, length-1), Count: 1, Draw: true}
	}
	return p.model.Step(rows)
}

// Load predicts a load: the engine's scheduler makes the steps, and each takes the predicted time.
func (p *Predictor) Load(l Load) (Forecast, error) {
	f := Forecast{Load: l}
	pool := kv.NewPool(p.account.KV, p.account.KV.Slabs(p.account.Reservation.Arenas[backend.KV]), false)
	s := sched.New(schedOptions(p.options, p.account.Reservation.Step.Drafts), pool)
	var limiter *steptime.PrefillLimiter
	if p.options.ITLTarget > 0 {
		limiter = steptime.New(p.options.ITLTarget.Seconds())
		s.SetPrefillLimiter(limiter)
	}
	params := sample.Default()
	params.MaxTokens, params.IgnoreEOS = l.Output, true
	for i := range l.Streams {
		if err := s.Add(sched.NewSeq(sched.Spec{ID: fmt.Sprint(i), Prompt: make([]int32, l.Prompt), Params: &params})); err != nil {
			return f, err
		}
	}
	lag := 0
	if p.options.Overlap {
		lag = 1
	}
	var flights []*sched.Step
	var now float64 // when the step that is committed next has ended
	var tokens []float64
	first := math.Inf(-1)
	for {
		step := s.Next()
		if step != nil {
			flights = append(flights, step)
		}
		if step == nil && len(flights) == 0 {
			break
		}
		if len(flights) <= lag && step != nil {
			continue
		}
		done := flights[0]
		flights = flights[1:]
		took := p.model.Step(rowsOf(done))
		now += took
		f.Steps++
		if limiter != nil {
			limiter.Learn(done.Work, took)
		}
		for _, o := range s.Commit(done, noTokens(done)) {
			if o.Token < 0 {
				continue
			}
			tokens = append(tokens, now)
			if o.First {
				first = now
			}
		}
	}
	if !s.Idle() || len(tokens) == 0 {
		return f, fmt.Errorf("engine: the load of %d requests with %d + %d tokens does not run to its end", l.Streams, l.Prompt, l.Output)
	}
	f.First, f.Last = first, tokens[len(tokens)-1]
	for _, t := range tokens {
		if t > first {
			f.After++
		}
	}
	return f, nil
}

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
