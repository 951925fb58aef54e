package appliance

import (
	"errors"
	"runtime"
	"sync"

	"vapp.dev/appliance/plan"
	"vapp.dev/engine"
	"vapp.dev/engine/backend/devices"
	"vapp.dev/schema"
)

// Fit plans p for each of the devices and returns a row for each. It opens no device and
// ignores m.Device. It returns an error of the profile or the model; the refusal of one
// device's backend is the Reason of its row.
func Fit(p *schema.Profile, m Machine, over []devices.Device) ([]plan.Row, error) {
	model, err := m.inspect(p)
	if err != nil {
		return nil, err
	}
	rows := make([]plan.Row, len(over))
	var wait sync.WaitGroup
	slots := make(chan struct{}, runtime.GOMAXPROCS(0))
	for i := range over {
		wait.Go(func() {
			slots <- struct{}{}
			rows[i] = m.fit(p, model, over[i])
			<-slots
		})
	}
	wait.Wait()
	return rows, model.Close()
}

func (m Machine) fit(p *schema.Profile, model *engine.Model, d devices.Device) plan.Row {
	refused := plan.Row{Device: d.Name, Total: d.TotalBytes, PlanOnly: []string{}}
	m.Device = &d
	op, err := m.choose(p)
	if err != nil {
		refused.Reason = err.Error()
		return refused
	}
	facts, err := m.facts(op)
	if err != nil {
		refused.Reason = err.Error()
		return refused
	}
	r, err := plan.FitOn(plan.Inputs{Profile: p, Model: model, Opener: op, Facts: facts}, d.Name)
	if err != nil {
		refused.Reason = err.Error()
		return refused
	}
	return r
}

// WhyNot returns whether what the goal asks for fits for the profile at path on the machine, and the
// changes with which it would.
func WhyNot(path string, m Machine, g plan.Goal) (*plan.Answer, error) {
	p, err := m.Load(path)
	if err != nil {
		return nil, err
	}
	in, err := m.inputs(p)
	if err != nil {
		return nil, err
	}
	a, err := plan.WhyNot(in, g)
	return a, errors.Join(err, in.Model.Close())
}
