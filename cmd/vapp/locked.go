package main

import (
	"context"
	"fmt"
	"os"

	"vapp.dev/appliance"
	"vapp.dev/engine"
	"vapp.dev/tools/lock"
	"vapp.dev/tools/lock/lockfile"
)

// admitLocked makes the appliance refuse every profile that differs from its lock. The lock is
// read again for each reload; a change of the lock file triggers one too.
func admitLocked(c *appliance.Config) {
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
		now, err := h.Lock(context.Background(), p, old, lockfile.Target{}, buildVersion())
		if err != nil {
			return err
		}
		if drift := old.Compare(now); len(drift) > 0 {
			return &lock.DriftError{Profile: file, Drifts: drift}
		}
		return nil
	}
}
