package engine

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"slices"

	"vapp.dev/engine/speed"
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
	encoder *speed.Model // of the vision tower; nil: none
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
	out := &Predictor{options: o, account: a, model: m}
	if t := a.encoder(); t != nil {
		if out.encoder, err = speed.New(a.Layout, t, r); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// Bases returns the basis of each kernel's rate.
func (p *Predictor) Bases() map[string]speed.Basis { return p.model.Bases() }

// DecodeStep returns the seconds of a step in which that many sequences of a length each decode a token.
func (p *Predictor) DecodeStep(streams, length int) float64 {
	rows := make([]speed.Row, streams)
	for i := range rows {
		rows[i] = speed.Row{From: max(0, length-1), Count: 1, Draw: true}
	}
	return p.model.Step(rows)
}

// OnGPU returns the predicted parts of a step's time; ok is false for a plan of a CPU.
func (p *Predictor) OnGPU(rows []speed.Row) (t speed.StepTime, ok bool, err error) {
	return p.model.OnGPU(rows)
}

// Step implements StepTimer.
func (p *Predictor) Step(rows []speed.Row) float64 { return p.model.Step(rows) }

// Encode implements EncodeTimer; it is 0 for a model without a vision tower.
func (p *Predictor) Encode(patches, rows int) float64 {
	if p.encoder == nil {
		return 0
	}
	return p.encoder.Encode(patches, rows)
}

// Load predicts a load: the engine's scheduler makes the steps, and each takes the predicted time. Its prompts
// share no prefix. Each has items of these sizes and places, and none is equal to another; Pixels are not read.
func (p *Predictor) Load(l Load, items ...Item) (Forecast, error) {
	f := Forecast{Load: l}
	o := p.options
	o.PrefixCaching = false
	s, err := NewSimulation(o, p.account, p)
	if err != nil {
		return f, err
	}
	courses := make([]*Course, l.Streams)
	for i := range courses {
		own := slices.Clone(items)
		for k := range own {
			binary.LittleEndian.PutUint64(own[k].Hash[:], uint64(i*len(own)+k))
		}
		if courses[i], err = s.Submit(0, make([]int32, l.Prompt), l.Output, own...); err != nil {
			return f, err
		}
	}
	if err := s.Advance(math.Inf(1)); err != nil {
		return f, err
	}
	for _, c := range courses {
		if len(c.Tokens) == 0 {
			return f, fmt.Errorf("engine: the load of %d requests with %d + %d tokens does not run to its end", l.Streams, l.Prompt, l.Output)
		}
		f.First, f.Last = max(f.First, c.Tokens[0]), max(f.Last, c.Tokens[len(c.Tokens)-1])
	}
	for _, c := range courses {
		for _, t := range c.Tokens {
			if t > f.First {
				f.After++
			}
		}
	}
	f.Steps = s.Steps()
	return f, nil
}
