package plan

import (
	"errors"
	"fmt"

	"vapp.dev/engine"
)

// StepTimes returns predicted times of the engine's steps, where their rates come from, and the relative error to
// expect. The error is a *SpeedError where there are no rates.
func (p *Plan) StepTimes() (_ engine.StepTimer, source string, band float64, err error) {
	pr, r, err := p.predictor()
	if err != nil {
		return nil, "", 0, err
	}
	source = r.words()
	if r.why != "" {
		source += fmt.Sprintf(" (%s)", r.why)
	}
	return pr, source, r.band, nil
}

// Simulate returns an idle engine of the plan on a simulated clock, whose steps take the times of t. The error is a
// *SpeedError for a plan whose engine cannot be simulated.
func (p *Plan) Simulate(t engine.StepTimer) (*engine.Simulation, error) {
	if p.Ranks > 1 {
		return nil, &SpeedError{p.Profile, errors.New("the model is split over several devices")}
	}
	s, err := engine.NewSimulation(p.Options, p.Account, t)
	if err != nil {
		return nil, &SpeedError{p.Profile, err}
	}
	return s, nil
}
