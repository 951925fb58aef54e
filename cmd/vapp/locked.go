package main

import (
	"context"
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"vapp.dev/appliance"
	"vapp.dev/engine"
	"vapp.dev/tools/lock"
	"vapp.dev/tools/lock/lockfile"
)

// admitLocked makes the appliance refuse every profile that differs from its lock. The lock is
// read again for each reload; a change of the lock file triggers one too.
func admitLocked(cmd *cobra.Command, c *appliance.Config) {
	h := &lockfile.Hasher{Progress: func() func(engine.Progress) { return hashProgress(os.Stderr) }}
	if p, err := c.Machine.Load(c.Profile); err == nil { // otherwise New reports the error
		c.AdmitFiles = []string{lock.FileOf(p.File())}
	}
	c.Admit = func(p *appliance.Prepared) error {
		file := p.Profile.Pos("").File
		old, err := lockfile.Read(file)
		if err != nil {
			return err
		}
		if old == nil {
			return fmt.Errorf("%s: not locked; write %s with `vapp lock`, or start without --locked", file, lock.FileOf(file))
		}
		here, err := h.Lock(context.Background(), p, old, lock.Flags{}, buildVersion())
		if err != nil {
			return err
		}
		drift := old.Compare(here)
		if old.Aimed() {
			if drift, err = aimedDrift(cmd, h, c.Machine, p, old, here); err != nil {
				return err
			}
		}
		if len(drift) > 0 {
			return &lock.DriftError{Profile: file, Drifts: drift}
		}
		return nil
	}
}

// aimedDrift compares a lock that was made for another machine: the plan for that machine has to
// be the locked one, and the plan for this machine has to carry as much.
func aimedDrift(cmd *cobra.Command, h *lockfile.Hasher, m appliance.Machine, p *appliance.Prepared, old, here *lock.Lock) ([]lock.Drift, error) {
	flags := old.FlagsFor(p.Profile)
	t := lockedTarget(flags)
	m, err := t.aim(cmd, m)
	if err != nil {
		return nil, err
	}
	there, err := appliance.PrepareProfile(p.Profile, m)
	if err != nil {
		return nil, err
	}
	defer there.Close()
	now, err := h.Lock(context.Background(), there, old, flags, buildVersion())
	if err != nil {
		return nil, err
	}
	drift := old.Compare(now)
	if len(drift) == 0 { // otherwise the plans differ in the same fields
		drift = old.Lacks(here)
	}
	return drift, nil
}
