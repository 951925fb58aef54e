//go:build cgo

package cpu

import "vapp.dev/kernels/cpu/native"

// ExpertPhase is a phase of a mixture of experts. All phases take Experts; each finishes before
// the next begins.
type ExpertPhase int32

// The phases, in order. ExpertsSort has one part.
const (
	ExpertsSort ExpertPhase = iota
	ExpertsGather
	ExpertsPrepareUp
	ExpertsUp
	ExpertsActivate
	ExpertsPrepareDown
	ExpertsDown
	ExpertsSum
	numExpertPhases
)

var _ [native.ExpertsPhases]struct{} = [numExpertPhases]struct{}{}

// Address returns the address of the phase's function, a vapp_fn of native/shared/kernels.h.
func (p ExpertPhase) Address() uintptr {
	return native.ExpertsPhase(int(p))
}
