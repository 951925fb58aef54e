package appliance

import (
	"context"
	"errors"
	"fmt"
	"os"

	"vapp.dev/appliance/hub"
	"vapp.dev/appliance/plan"
	"vapp.dev/engine"
	"vapp.dev/schema"
)

// source is the model of a profile as the engine names it. A name of the hub that
// no path has is looked for in the hub's cache; where it is not, the source says
// what brings it. The hub itself is never asked.
func (m Machine) source(p *schema.Profile) (engine.Source, error) {
	s := plan.Source(p, m.Config)
	if s.Config != "" {
		return s, nil
	}
	n, ok, err := HubName(p)
	if err != nil || !ok {
		return s, err
	}
	if found, ok := m.Hub.Find(n, hub.Want{Format: s.Format}); ok {
		s.Path = found.Path
		return s, nil
	}
	s.Absent = "in the Hugging Face cache"
	s.Remedy = fmt.Sprintf("fetch them with `vapp pull %s`", n)
	return s, nil
}

// HubName is the name of the hub that a profile's model has; ok is false where
// model.source is a path, one that exists or cannot be a name.
func HubName(p *schema.Profile) (n hub.Name, ok bool, err error) {
	n, ok = hub.ParseName(p.Model.Source)
	if ok {
		_, err := os.Stat(p.Path(p.Model.Source))
		ok = err != nil
	}
	switch {
	case !ok && p.Model.Revision != "":
		return n, false, p.Reject("model.revision", "%s is a path, and only models of the hub have revisions; leave the field out", p.Model.Source)
	case !ok:
		return n, false, nil
	case n.Revision != "":
		return n, false, p.Reject("model.source", "%s: put the revision into model.revision, as %q", p.Model.Source, n.Revision)
	}
	if n, err = n.At(p.Model.Revision); err != nil {
		return n, false, p.Reject("model.revision", "%v", err)
	}
	return n, true, nil
}

// Obtain fetches the model of the profile at path where it is neither a path nor
// in the cache. What can be known before is asked first: a profile that does not
// fit or cannot be run here is refused before its weights are fetched.
func Obtain(ctx context.Context, path string, m Machine, c *hub.Client) error {
	p, err := m.Load(path)
	if err != nil {
		return err
	}
	n, ok, err := HubName(p)
	if err != nil || !ok {
		return err
	}
	missing, err := m.lacks(p)
	if err != nil || !missing {
		return err
	}
	pull, err := c.Open(ctx, n, hub.Want{Format: p.Model.LoadFormat})
	if err != nil {
		return placedAtSource(p, err)
	}
	if pull.Config() {
		m.Config = pull.Dir
		if err := m.startable(p); err != nil {
			return err
		}
	}
	_, err = pull.Weights(ctx)
	return placedAtSource(p, err)
}

// lacks reports that the model's weights are not here. Its error is why the profile
// could not be run with them.
func (m Machine) lacks(p *schema.Profile) (bool, error) {
	prepared, err := PrepareProfile(p, m)
	var unknown *engine.MissingError
	switch {
	case errors.As(err, &unknown):
		return true, nil
	case err != nil:
		return false, err
	case prepared.Model.Loadable() == nil:
		return false, prepared.Close()
	}
	return true, errors.Join(prepared.runnable(), prepared.Close())
}

// startable plans p and says why it could not be run.
func (m Machine) startable(p *schema.Profile) error {
	prepared, err := PrepareProfile(p, m)
	if err != nil {
		return err
	}
	return errors.Join(prepared.runnable(), prepared.Close())
}

// placedAtSource gives the hub's errors their place.
func placedAtSource(p *schema.Profile, err error) error {
	if known := (*hub.Error)(nil); errors.As(err, &known) {
		return p.Reject("model.source", "%v", err)
	}
	return err
}
