//go:build cgo

package main

import (
	"fmt"
	"time"

	"vapp.dev/appliance"
	"vapp.dev/engine/backend/cpu"
	"vapp.dev/engine/backend/cuda"
	"vapp.dev/engine/backend/measure"
	"vapp.dev/tools/bench/enginebench"
)

// measureLimits measures the limits of the machine with the number of threads of the plan.
func measureLimits(p *appliance.Prepared) (enginebench.Limits, error) {
	switch p.Opener.Name() {
	case "cuda":
		r, err := measure.Device(p.Opener, p.Plan.Facts, measure.GPU)
		if err != nil {
			return enginebench.Limits{}, err
		}
		c, err := cuda.Opener{}.Ceilings(p.Plan.Facts, 1<<30, 8192)
		return enginebench.Limits{Read: r.Bytes, BF16: r.BF16, Copy: c.Copy, Library: c.Library, NoLibrary: c.Why}, err
	case "cpu":
	default:
		return enginebench.Limits{}, fmt.Errorf("bench: limits are measured for backends cpu and cuda only, not %s", p.Opener.Name())
	}
	l, err := cpu.MeasureLimits(p.Plan.Options.Backend.Threads, 3*time.Second)
	return enginebench.Limits{Read: l.Read, F32: l.F32, BF16: l.BF16, Int8: l.Int8}, err
}
