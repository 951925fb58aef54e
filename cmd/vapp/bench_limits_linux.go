//go:build cgo

package main

import (
	"fmt"
	"time"

	"vapp.dev/appliance"
	"vapp.dev/engine/backend/cpu"
)

// limits measures what the machine can do at most, with as many threads as the
// plan computes with.
func limits(p *appliance.Prepared) (ceiling, error) {
	if p.Opener.Name() != "cpu" {
		return ceiling{}, fmt.Errorf("bench: limits are measured for backend cpu only, not %s", p.Opener.Name())
	}
	l, err := cpu.MeasureLimits(p.Plan.Options.Backend.Threads, 3*time.Second)
	return ceiling{Read: l.Read, F32: l.F32, BF16: l.BF16, Int8: l.Int8}, err
}
