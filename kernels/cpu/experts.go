//go:build cgo

package cpu

/*
#include "experts.h"
*/
import "C"

import "unsafe"

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

var _ [C.VAPP_EXPERTS_PHASES]struct{} = [numExpertPhases]struct{}{}

// Address is the phase's function, a vapp_fn of kernels.h.
func (p ExpertPhase) Address() uintptr {
	return uintptr(unsafe.Pointer(C.vapp_experts_phase(C.int(p))))
}

// expertSizes are the C structs'.
func expertSizes() (stack, experts uintptr) {
	return C.sizeof_vapp_stack, C.sizeof_vapp_experts
}
