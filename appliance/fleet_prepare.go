package appliance

import (
	"errors"

	"vapp.dev/appliance/plan"
	"vapp.dev/schema"
)

// prepare plans the profiles, each and together.
func (f *Fleet) prepare(all []Config) (out []*Prepared, err error) {
	var bad ProfilesError
	for i := range all {
		all[i].Machine.Turns = f.shared.seat
		p, err := Prepare(all[i].Profile, all[i].Machine)
		if err != nil {
			bad.add(err)
			continue
		}
		out = append(out, p)
		bad.add(p.startable())
		if admit := all[i].Admit; admit != nil {
			bad.add(admit(p))
		}
	}
	if err = bad.orNil(); err == nil {
		err = f.admit(out)
	}
	if err != nil {
		return nil, errors.Join(err, closeAll(out))
	}
	return out, nil
}

// ProfilesError is what is wrong with several profiles, each for itself.
type ProfilesError struct{ List []error }

func (e *ProfilesError) add(err error) {
	if err != nil {
		e.List = append(e.List, err)
	}
}

func (e *ProfilesError) orNil() error {
	if len(e.List) == 0 {
		return nil
	}
	return e
}

// Error returns the errors, one below the other.
func (e *ProfilesError) Error() string { return errors.Join(e.List...).Error() }

// Unwrap returns the errors.
func (e *ProfilesError) Unwrap() []error { return e.List }

// admit returns why the servers cannot run together.
func (f *Fleet) admit(all []*Prepared) error {
	j, err := join(all)
	if err != nil {
		return err
	}
	return j.CheckFree()
}

// join returns the joint plan of profiles that can be served together.
func join(all []*Prepared) (*plan.Joint, error) {
	var profiles []*schema.Profile
	var plans []*plan.Plan
	for _, p := range all {
		profiles, plans = append(profiles, p.Profile), append(plans, p.Plan)
	}
	if err := plan.CheckTogether(profiles); err != nil {
		return nil, err
	}
	return plan.Join(plans)
}

// PrepareTogether plans the profiles at paths together, each for its machine. The caller closes them. The errors are
// those of NewFleet.
func PrepareTogether(paths []string, machines []Machine) (all []*Prepared, j *plan.Joint, err error) {
	var bad ProfilesError
	for i, path := range paths {
		p, err := Prepare(path, machines[i])
		if err != nil {
			bad.add(err)
			continue
		}
		all = append(all, p)
	}
	if err = bad.orNil(); err == nil {
		j, err = join(all)
	}
	if err != nil {
		return nil, nil, errors.Join(err, closeAll(all))
	}
	return all, j, nil
}

func closeAll(list []*Prepared) error {
	var errs []error
	for _, p := range list {
		errs = append(errs, p.Close())
	}
	return errors.Join(errs...)
}
