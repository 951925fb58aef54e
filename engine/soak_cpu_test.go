//go:build cgo && linux

package engine_test

import (
	"testing"

	"vapp.dev/engine/backend/cpu"
)

// TestSoakCPU is TestSoak with most of the requests, the long ones included, on backend cpu.
func TestSoakCPU(t *testing.T) {
	if testing.Short() {
		t.Skip("not run: -short leaves it out, make test runs it")
	}
	soakFamilies(t, cpu.Opener{}, soakLoad{requests: 1800, short: 80, longest: 8192, shortest: 512})
}
