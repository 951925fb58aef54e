//go:build linux && cgo && cuda

package cuda

import (
	"errors"
	"slices"

	"vapp.dev/engine/backend"
	"vapp.dev/engine/backend/cuda/driver"
)

// fatal reports whether nothing on the device works after err.
func fatal(err error) bool {
	var e *driver.Error
	return errors.As(err, &e) && e.Fatal() || hung(err)
}

// hung reports whether err means that the device no longer responds.
func hung(err error) bool {
	var h *driver.HungError
	return errors.As(err, &h)
}

// Close waits for running work and frees everything but weights that others use. If the device hangs, memory stays
// allocated until the process ends, because every call that frees it would block forever.
func (d *device) Close() error {
	if d.ctx == nil {
		return nil
	}
	for _, l := range d.lists {
		l.Close()
	}
	var err error
	failed := d.failed.Load()
	if failed == nil || !hung(*failed) {
		if err = d.idle(); err == nil {
			err = d.ctx.Do(func() error { return errors.Join(d.close(), d.member.close()) })
		}
	}
	switch {
	case failed != nil && hung(*failed):
		d.shared.lose(*failed)
	case hung(err):
		err = d.fail(err)
		d.shared.lose(err)
	case failed != nil: // on a failed device only the context can be released
		err = errors.Join(d.shared.lose(*failed), d.ctx.Close())
	case fatal(err):
		err = errors.Join(err, d.shared.lose(err), d.ctx.Close())
	default:
		err = errors.Join(err, d.shared.leave(), d.ctx.Close())
	}
	d.ctx, d.arenas, d.steps, d.sets = nil, [backend.NumArenas]driver.Address{}, nil, nil
	return err
}

func (d *device) close() error {
	var errs []error
	for _, s := range d.sets {
		for _, e := range []*driver.Event{s.copied, s.done} {
			if e != nil {
				errs = append(errs, e.Close())
			}
		}
	}
	for _, c := range d.captured {
		errs = append(errs, c.close())
	}
	errs = append(errs, d.timer.close(), d.staging.close(d.ctx), d.encoder.close(d.ctx))
	if d.blas != nil {
		errs = append(errs, d.blas.Close())
	}
	for a, p := range d.arenas {
		if p != 0 && backend.Arena(a) != backend.Swap && (backend.Arena(a) != backend.Weights || d.shared == nil) {
			errs = append(errs, d.ctx.Free(p))
		}
	}
	for _, b := range [][]byte{d.host, d.swap} {
		if b != nil {
			errs = append(errs, d.ctx.FreePinned(b))
		}
	}
	for _, m := range d.modules {
		if m != nil {
			errs = append(errs, m.Close())
		}
	}
	return errors.Join(slices.DeleteFunc(errs, func(err error) bool { return err == nil })...)
}
