//go:build cgo

package main

import (
	"fmt"
	"time"

	"vapp.dev/appliance"
	"vapp.dev/engine/backend/cpu"
	"vapp.dev/engine/backend/measure"
)

// limits measures what the machine can do at most, with as many threads as the
// plan computes with.
func limits(p *appliance.Prepared) (ceiling, error) {
	switch p.Opener.Name() {
	case "cuda":
		r, err := measure.Device(p.Opener, p.Plan.Facts, measure.GPU)
		return ceiling{Read: r.Bytes, BF16: r.BF16}, err
	case "cpu":
	default:
		return ceiling{}, fmt.Errorf("bench: limits are measured for backends cpu and cuda only, not %s", p.Opener.Name())
	}
	l, err := cpu.MeasureLimits(p.Plan.Options.Backend.Threads, 3*time.Second)
	return ceiling{Read: l.Read, F32: l.F32, BF16: l.BF16, Int8: l.Int8}, err
}
