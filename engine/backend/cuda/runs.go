package cuda

import (
	"vapp.dev/engine/backend"
)

// Runs returns nil if kernels can run all of p. Otherwise it returns the device's own reason,
// or the first op without a kernel.
func (l layout) Runs(weights []backend.WeightSpec, p *backend.Program) error {
	switch {
	case l.facts.PlanOnly != "":
		return backend.Unsupported(name, l.facts.Device, l.facts.PlanOnly)
	case l.other != "":
		return backend.Unsupported(name, l.facts.Device, "its architecture is not CUDA's")
	case l.cc < 80:
		return backend.Unsupported(name, l.facts.Device, "kernels begin with compute capability 8.0: older devices are planned only")
	case p.Bucket.Chunk > 0:
		return backend.Unsupported(name, "a gated MLP in chunks", "programs of this backend have none")
	}
	if err := p.Check(); err != nil {
		return err
	}
	for _, v := range variants(p.Bucket) {
		if _, err := l.lower(p, v, noAddresses(p)); err != nil {
			return err
		}
	}
	return nil
}
