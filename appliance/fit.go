package appliance

import (
	"errors"

	"vapp.dev/appliance/plan"
	"vapp.dev/schema"
)

// Fit plans p for the device of m and says what fits there. It opens nothing.
// m.Device is needed. An error is about the profile or the model, not about the
// device; a wish that a device's backend refuses is the row's reason.
func Fit(p *schema.Profile, m Machine) (plan.Row, error) {
	in, err := m.inputs(p)
	if err != nil {
		return plan.Row{}, err
	}
	r, err := plan.FitOn(in, m.Device.Name)
	if err != nil {
		r.Reason, err = err.Error(), nil
	}
	return r, errors.Join(err, in.Model.Close())
}

// WhyNot says what would make so many sequences of a length fit, of the profile at
// path on the machine.
func WhyNot(path string, m Machine, seqs, tokens int) (*plan.Answer, error) {
	p, err := schema.Load(path)
	if err != nil {
		return nil, err
	}
	in, err := m.inputs(p)
	if err != nil {
		return nil, err
	}
	a, err := plan.WhyNot(in, seqs, tokens)
	return a, errors.Join(err, in.Model.Close())
}
