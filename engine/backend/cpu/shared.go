//go:build cgo && linux

package cpu

import (
	"vapp.dev/engine/backend"
)

// memory is a Weights arena and its users.
type memory struct {
	*backend.SharedWeights
	arena   arena
	refused *backend.PlacementError // of the arena
	// writing has the turn to write the file of packed weights; the one who has it may use written, the path of the
	// last file written.
	writing chan struct{}
	written string
}

// weights is a reference to the weights of a device.
type weights struct {
	*backend.WeightsHolder
	of *memory
}

var _ backend.Sharer = (*device)(nil)

// ofWeights returns what other devices must have in common with d to use its weights.
func (d *device) ofWeights(s backend.Settings) backend.WeightsOf {
	return d.r.OfWeights(name, "", d.layout.Packing(), s.Cache.Key)
}

// useWeights takes the weights of the settings, or reads them from the file of packed weights. Else the arena stays
// unmapped. Slots of adapters are zero then.
func (d *device) useWeights(s backend.Settings) error {
	if s.Weights == nil {
		return d.useCache(s.Cache)
	}
	w, err := backend.JoinWeights[weights](s, d.ofWeights(s))
	if err != nil {
		return err
	}
	d.shared, d.joined, d.arenas[backend.Weights], d.refused = w.of, true, w.of.arena, w.of.refused
	for i, p := range d.weights {
		if d.r.Weights[i].Unloaded {
			clear(w.of.arena.slice(p.off, p.Bytes))
		}
	}
	return d.keepCache(s.Cache)
}

// count begins to count the users of the Weights arena, if it is the device's own.
func (d *device) count(s backend.Settings) {
	if d.joined {
		return
	}
	m := &memory{arena: d.arenas[backend.Weights], refused: d.refused, writing: make(chan struct{}, 1)}
	m.SharedWeights = backend.NewSharedWeights(d.ofWeights(s), m.arena.unmap)
	d.shared = m
}

// ShareWeights implements backend.Sharer.
func (d *device) ShareWeights() (backend.PackedWeights, error) {
	if d.layout.group != nil {
		return nil, backend.Unsupported(name, "sharing weights", "the model has several ranks")
	}
	h, err := d.shared.Hold()
	if err != nil {
		return nil, err
	}
	return weights{h, d.shared}, nil
}

// WeightsInfo implements backend.Sharer.
func (d *device) WeightsInfo() backend.WeightsInfo { return d.shared.Info() }
