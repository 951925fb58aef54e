//go:build cgo

package cpu

import "vapp.dev/kernels/cpu/native"

// ExpertPhase is a function of a mixture of experts. All take Experts; each is finished
// before the next begins.
type ExpertPhase int32

// The phases, in order. ExpertsSort is for one part.
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

// Address is the phase's function, a vapp_fn of kernels.h.
func (p ExpertPhase) Address() uintptr {
	return native.ExpertsPhase(int(p))
}
