//go:build cgo

package main

import (
	"time"

	"vapp.dev/engine/backend"
	"vapp.dev/engine/backend/cpu"
	"vapp.dev/engine/speed"
)

// readMeter returns a function that measures the rate of reading memory, in bytes per second, and one that
// frees what it holds.
func readMeter() (read func() float64, done func(), err error) {
	m, err := cpu.OpenMeter(0)
	if err != nil {
		return nil, nil, err
	}
	return func() float64 { return m.Read(30 * time.Millisecond) }, m.Close, nil
}

// measureBase measures the rates of memory and registers with a thread for each core.
func measureBase(backend.Facts) (speed.Rates, error) {
	l, err := cpu.MeasureLimits(0, 3*time.Second)
	return speed.Rates{Threads: l.Threads, Read: l.Read, F32: l.F32, Variant: l.Variant, BF16: l.BF16, Int8: l.Int8}, err
}
