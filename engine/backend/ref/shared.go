package ref

import (
	"vapp.dev/engine/backend"
)

// sharing is the Weights arena as a device sees it that shares it.
type sharing struct {
	*memory
	joined bool // another device packed them
}

// memory is a Weights arena and its users.
type memory struct {
	*backend.SharedWeights
	bytes []byte
}

// weights is a reference to the weights of a device.
type weights struct {
	*backend.WeightsHolder
	of *memory
}

var _ backend.Sharer = (*device)(nil)

// share makes the device's Weights arena one that others can use, or takes the one of the settings. Slots of
// adapters are zero then.
func (d *device) share(s backend.Settings) error {
	of := d.r.OfWeights(name, "", d.layout.Packing(), s.Cache.Key)
	if s.Weights == nil {
		m := &memory{bytes: d.arenas[backend.Weights]}
		m.SharedWeights = backend.NewSharedWeights(of, func() error { m.bytes = nil; return nil })
		d.shared = &sharing{memory: m}
		return nil
	}
	w, err := backend.JoinWeights[weights](s, of)
	if err != nil {
		return err
	}
	d.shared, d.arenas[backend.Weights] = &sharing{w.of, true}, w.of.bytes
	var at int64
	for i, p := range d.r.Packed {
		if d.r.Weights[i].Unloaded {
			clear(w.of.bytes[at : at+p.Bytes])
		}
		at += p.Bytes
	}
	return nil
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
	return weights{h, d.shared.memory}, nil
}

// WeightsInfo implements backend.Sharer.
func (d *device) WeightsInfo() backend.WeightsInfo { return d.shared.Info() }
