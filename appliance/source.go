package appliance

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"vapp.dev/appliance/hub"
	"vapp.dev/appliance/plan"
	"vapp.dev/engine"
	"vapp.dev/schema"
)

// source returns the engine's source of a profile's model. If the model is not a path but
// a name of the hub, source looks in the hub's cache, never on the network. For a model
// that is not in the cache, the source has the command that fetches it.
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

// HubName returns the hub name of a profile's model. ok is false if model.source is a
// path: it exists, or cannot be a hub name.
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

// Obtain fetches the model of the profile at path, unless it is a path or in the cache.
// It first fetches config.json and plans: a profile that does not fit or cannot run on
// this machine is rejected before its weights are fetched.
func Obtain(ctx context.Context, path string, m Machine, c *hub.Client) error {
	p, err := m.Load(path)
	if err != nil {
		return err
	}
	n, ok, err := HubName(p)
	if err != nil || !ok {
		return err
	}
	missing, err := m.missingWeights(p)
	if err != nil || !missing {
		return err
	}
	pull, err := c.Open(ctx, n, hub.Want{Format: p.Model.LoadFormat})
	if err != nil {
		return atSourceField(p, err)
	}
	if pull.Config() {
		m.Config = pull.Dir
		if err := m.startable(p); err != nil {
			return err
		}
	}
	_, err = pull.Weights(ctx)
	return atSourceField(p, err)
}

// missingWeights reports whether the model's weights are missing. It returns an error if
// the profile could not run even with them.
func (m Machine) missingWeights(p *schema.Profile) (bool, error) {
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

// startable plans p and returns why it could not run.
func (m Machine) startable(p *schema.Profile) error {
	prepared, err := PrepareProfile(p, m)
	if err != nil {
		return err
	}
	return errors.Join(prepared.runnable(), prepared.Close())
}

// atSourceField returns the hub's errors as errors of the field model.source, with the path that was
// looked for before the hub.
func atSourceField(p *schema.Profile, err error) error {
	known := (*hub.Error)(nil)
	if !errors.As(err, &known) {
		return err
	}
	switch known.Kind {
	case hub.Unreachable, hub.Offline, hub.NotFound:
		return p.Reject("model.source", "%v (and there is no file or folder %s)", WithNear(err), p.Path(p.Model.Source))
	}
	return p.Reject("model.source", "%v", err)
}

// WithNear adds similar names of the catalogue to the error of a model that the hub does not have.
func WithNear(err error) error {
	known := (*hub.Error)(nil)
	if !errors.As(err, &known) || known.Kind != hub.NotFound {
		return err
	}
	if near := engine.Suggest(known.Name.Repo); len(near) > 0 && !slices.Contains(near, known.Name.Repo) {
		return fmt.Errorf("%w; did you mean %s?", err, strings.Join(near, ", "))
	}
	return err
}
