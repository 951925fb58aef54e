package appliance

import (
	"vapp.dev/appliance/chat"
	"vapp.dev/engine"
)

// poolings maps the pooling types of profiles to the engine's.
var poolings = map[string]engine.PoolingMode{"LAST": engine.PoolingLast, "MEAN": engine.PoolingMean, "CLS": engine.PoolingFirst, "ALL": engine.PoolingAll}

// pooling returns the pooling configuration of the model; nil for a generating model.
func (p *Prepared) pooling() *chat.PoolingConfig {
	q := p.Model.Pooling
	if q == nil {
		return nil
	}
	return &chat.PoolingConfig{
		Task: q.Task, Mode: poolings[q.Type], Width: p.Plan.Account.Reservation.Step.OutputCols, Normalize: q.Normalize, Activation: q.Activation, Labels: q.Labels,
		Chosen: len(q.Tokens) > 0, Matryoshka: q.Matryoshka, Dimensions: q.Dimensions, AtOnce: p.Plan.Options.MaxNumSeqs,
	}
}
