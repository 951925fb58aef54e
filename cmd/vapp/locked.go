package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"

	"vapp.dev/appliance"
	"vapp.dev/appliance/lock"
	"vapp.dev/engine"
)

// admitLocked makes the appliance serve nothing that differs from the lock, which
// it reads again for each change in the profile's folder, its own too.
func admitLocked(c *appliance.Config) {
	d := &digests{progress: func() func(engine.Progress) { return hashProgress(os.Stderr) }}
	if p, err := c.Machine.Load(c.Profile); err == nil { // New says what is wrong with it
		c.AdmitFiles = []string{lock.FileOf(p.File())}
	}
	c.Admit = func(p *appliance.Prepared) error {
		file := p.Profile.Pos("").File
		old, err := readLock(file)
		if err != nil {
			return err
		}
		if old == nil {
			return fmt.Errorf("%s: not locked; write %s with `vapp lock`, or start without --locked", file, lock.FileOf(file))
		}
		now, err := d.lockOf(context.Background(), p, old, target{})
		if err != nil {
			return err
		}
		if drift := old.Compare(now); len(drift) > 0 {
			return &lock.DriftError{Profile: file, Drifts: drift}
		}
		return nil
	}
}

// readLock is the lock of a profile; nil where it has none.
func readLock(profile string) (*lock.Lock, error) {
	name := lock.FileOf(profile)
	st, err := os.Stat(name)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, nil
	case err != nil:
		return nil, unreadable(name, err)
	case !st.Mode().IsRegular() || st.Size() > lock.MaxBytes:
		return nil, &lock.Error{File: name, Reason: fmt.Sprintf("not a file of at most %d bytes", lock.MaxBytes)}
	}
	data, err := os.ReadFile(name)
	if err != nil {
		return nil, unreadable(name, err)
	}
	return lock.Parse(name, data)
}

// lockOf makes the lock of what was prepared for t.
func (d *digests) lockOf(ctx context.Context, p *appliance.Prepared, old *lock.Lock, t target) (*lock.Lock, error) {
	files, err := modelFiles(p)
	if err != nil {
		return nil, err
	}
	hashed, err := d.of(ctx, files, old)
	if err != nil {
		return nil, err
	}
	return lock.Of(lock.Inputs{Vapp: buildVersion(), Profile: p.Profile, Plan: p.Plan, GPU: t.gpu, Memory: t.memory, Files: hashed})
}
