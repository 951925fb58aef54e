package appliance

import (
	"errors"
	"testing"

	"vapp.dev/engine/backend"
	"vapp.dev/engine/backend/devices"
	"vapp.dev/schema"
)

// found is a backend with only a name and a result of Probe.
type found struct {
	backend.Opener
	name, planOnly string
	err            error
}

func (f found) Name() string { return f.name }
func (f found) Probe() (backend.Facts, error) {
	return backend.Facts{Backend: f.name, PlanOnly: f.planOnly}, f.err
}

// TestChoose checks that auto chooses a GPU that has kernels, else a CPU backend without a
// Probe, and that a named backend is chosen or refused.
func TestChoose(t *testing.T) {
	cpu, h200 := found{name: "cpu", planOnly: "no kernels"}, devices.Device{Name: "h200", Kind: devices.GPU}
	for _, c := range []struct {
		name, asked string
		gpu         found
		device      *devices.Device
		want        string
	}{
		{name: "a GPU", asked: "auto", want: "cuda"},
		{name: "no driver", asked: "auto", gpu: found{err: errors.New("no driver")}, want: "cpu"},
		{name: "an old GPU", asked: "auto", gpu: found{planOnly: "older than 8.0"}, want: "cpu"},
		{name: "an old GPU by name", asked: "cuda", gpu: found{planOnly: "older than 8.0"}, want: "cuda"},
		{name: "no driver, a device of the catalogue", asked: "auto", gpu: found{err: errors.New("no driver")}, device: &h200, want: "cuda"},
		{name: "by name", asked: "cpu", want: "cpu"},
		{name: "not for this device", asked: "cpu", device: &h200},
		{name: "not in this binary", asked: "ref"},
	} {
		c.gpu.name = "cuda"
		m := Machine{Backends: []backend.Opener{c.gpu, cpu}, Device: c.device}
		op, err := m.choose(&schema.Profile{Backend: c.asked})
		if (err == nil) != (c.want != "") || err == nil && op.Name() != c.want {
			t.Errorf("%s: %v, %v", c.name, op, err)
		}
	}
}
