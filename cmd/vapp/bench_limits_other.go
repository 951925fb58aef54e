//go:build !linux || !cgo

package main

import (
	"errors"

	"vapp.dev/appliance"
)

// limits needs the threads of backend cpu.
func limits(*appliance.Prepared) (ceiling, error) {
	return ceiling{}, errors.New("bench: this binary cannot measure the machine's limits; it needs Linux and a build with cgo")
}
