package engine

import (
	"fmt"

	"vapp.dev/engine/backend"
)

// Weights returns a reference to the engine's packed weights, for Config.Weights of another engine, now or after this
// one is closed. The caller closes it. It fails with a *backend.WeightsError if the weights are freed or lost, and
// with backend.ErrUnsupported with several ranks.
func (e *Engine) Weights() (backend.PackedWeights, error) {
	d, ok := e.dev.(backend.Sharer)
	if !ok {
		return nil, fmt.Errorf("sharing the weights of %T: %w", e.dev, backend.ErrUnsupported)
	}
	return d.ShareWeights()
}

// WeightsInfo describes the engine's packed weights; ok is false on a device that cannot share them. Engines with the
// same ID have the same memory, which Usage of each counts.
func (e *Engine) WeightsInfo() (i backend.WeightsInfo, ok bool) {
	d, ok := e.dev.(backend.Sharer)
	if ok {
		i = d.WeightsInfo()
	}
	return i, ok
}

// uses returns an error unless dev, which a backend has opened with w, uses w: one that does not know
// backend.Settings.Weights has memory with no weights in it.
func uses(name string, dev backend.Device, w backend.PackedWeights) error {
	if d, ok := dev.(backend.Sharer); ok && d.WeightsInfo().ID == w.Info().ID {
		return nil
	}
	return backend.Unsupported(name, "weights of another engine", "its devices do not share weights")
}
