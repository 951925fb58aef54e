//go:build !linux || !cgo

package main

import (
	"errors"

	"vapp.dev/appliance"
	"vapp.dev/tools/bench/enginebench"
)

// measureLimits fails: it needs the threads of backend cpu.
func measureLimits(*appliance.Prepared) (enginebench.Limits, error) {
	return enginebench.Limits{}, errors.New("bench: this binary cannot measure the machine's limits; it needs Linux and a build with cgo")
}
