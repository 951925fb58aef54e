package appliance

import (
	"vapp.dev/appliance/chat"
	"vapp.dev/engine"
)

// poolings maps the pooling types of profiles to the engine's.
var poolings = map[string]engine.Pool{"LAST": engine.PoolLast, "MEAN": engine.PoolMean, "CLS": engine.PoolFirst, "ALL": engine.PoolAll}

// pooling returns the pooling configuration of the model; nil for a generating model.
func (p *Prepared) pooling() *chat.Pooling {
	q := p.Model.Pooling
	if q == nil {
		return nil
	}
	return &chat.Pooling{
		Task: q.Task, How: poolings[q.Type], Width: p.Plan.Account.Reservation.Step.Emit, Normalize: q.Normalize, Activation: q.Activation, Labels: q.Labels,
		Chosen: len(q.Tokens) > 0, Matryoshka: q.Matryoshka, Dimensions: q.Dimensions, AtOnce: p.Plan.Options.MaxNumSeqs,
	}
}
